package e2e_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/pool/status"
)

// registryServer is a registry of this process: containerd takes one on the loopback without TLS. wrap stands before it.
type registryServer struct {
	t    *testing.T
	host string
	open http.Handler // without what wrap does
}

func newRegistry(t *testing.T, wrap func(http.Handler) http.Handler) *registryServer {
	t.Helper()
	clusterIsHere(t)
	open := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(wrap(open))
	t.Cleanup(server.Close)
	return &registryServer{t: t, host: strings.TrimPrefix(server.URL, "http://"), open: open}
}

// push puts an image of its own under a name, past what stands before the registry, and returns its reference.
func (r *registryServer) push(repository string) string {
	r.t.Helper()
	server := httptest.NewServer(r.open)
	defer server.Close()
	image, err := random.Image(64<<10, 1) // a job image may hold anything: the entrypoint brings itself
	require.NoError(r.t, err)
	image, err = mutate.ConfigFile(image, platform(r.t, image))
	require.NoError(r.t, err)
	ref, err := name.ParseReference(strings.TrimPrefix(server.URL, "http://") + "/" + repository)
	require.NoError(r.t, err)
	require.NoError(r.t, remote.Write(ref, image))
	return r.host + "/" + repository
}

func platform(t *testing.T, image v1.Image) *v1.ConfigFile {
	t.Helper()
	config, err := image.ConfigFile()
	require.NoError(t, err)
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", goarch()
	return config
}

func TestAMissingTagIsNamedAndFoundOnceItIsThere(t *testing.T) {
	t.Parallel()
	r := newRegistry(t, func(next http.Handler) http.Handler { return next })
	s := newSite(t, settings{"image": r.host + "/team/job:1", "idle_count": 3})
	s.startManager()
	short := s.untilStatus("the image is named", shortOf(status.ImagePull))
	require.Contains(t, short.Shortfall.Message, r.host+"/team/job:1")
	require.Contains(t, short.Shortfall.Message, "not found")
	s.until("one pod is left as a probe", func(pods []corev1.Pod) bool {
		return len(in(pods, factory.Warming)) == 1 && len(in(pods, factory.Failed)) == 0
	})
	r.push("team/job:1")
	s.untilIdle(3)
	s.untilStatus("nothing is short", func(st status.Status) bool { return st.Shortfall == nil })
	require.Len(t, s.events("Shortfall"), 1, "it was said once")
}

func TestALoginThatIsMissingIsNamedAndPullSecretsMendIt(t *testing.T) {
	t.Parallel()
	const user, password = "team", "correct horse"
	r := newRegistry(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if u, p, ok := req.BasicAuth(); !ok || u != user || p != password {
				w.Header().Set("WWW-Authenticate", `Basic realm="team"`)
				http.Error(w, `{"errors":[{"code":"UNAUTHORIZED"}]}`, http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, req)
		})
	})
	ref := r.push("team/job:1")
	s := newSite(t, settings{"image": ref, "idle_count": 2})
	s.startManager()
	short := s.untilStatus("the login is missing", shortOf(status.ImagePull))
	require.Contains(t, short.Shortfall.Message, ref)
	require.Regexp(t, "(?i)authorization|unauthorized|credentials", short.Shortfall.Message)

	auth := base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
	dockerConfig, err := json.Marshal(map[string]any{"auths": map[string]any{r.host: map[string]string{"auth": auth}}})
	require.NoError(t, err)
	_, err = s.client.CoreV1().Secrets(s.namespace).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "registry"}, Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: dockerConfig},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	s.rewrite(settings{"image": ref, "idle_count": 2, "image_pull_secrets": []string{"registry"}})
	s.untilIdle(2)
	require.Eventually(t, func() bool {
		all := s.statuses()
		for _, st := range all {
			if st.Shortfall != nil {
				return false
			}
		}
		return len(all) == 1
	}, patience, 100*time.Millisecond, "the pool without the secret is gone, the other one is full")
}

// TestASlowPullIsNoFailure holds an image's layer back: the pods wait for it, and nothing is said or made anew.
func TestASlowPullIsNoFailure(t *testing.T) {
	t.Parallel()
	var slow atomic.Bool
	begun, release := make(chan struct{}), make(chan struct{})
	first, last := sync.OnceFunc(func() { close(begun) }), sync.OnceFunc(func() { close(release) })
	t.Cleanup(last) // before the server is closed, which waits for its requests
	r := newRegistry(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if slow.Load() && req.Method == http.MethodGet && strings.Contains(req.URL.Path, "/blobs/") {
				first()
				select {
				case <-release:
				case <-req.Context().Done():
					return
				}
			}
			next.ServeHTTP(w, req)
		})
	})
	t.Cleanup(last)
	ref := r.push("team/job:1")
	slow.Store(true)
	s := newSite(t, settings{"image": ref, "idle_count": 2})
	s.startManager()
	before := s.until("two pods are warming", func(pods []corev1.Pod) bool { return len(in(pods, factory.Warming)) == 2 })
	select {
	case <-begun:
	case <-time.After(patience):
		t.Fatal("nobody pulls the image")
	}
	// The pods live on as they are until the layer comes; there is nothing to wait for that a watch would show.
	s.always(func(pods []*corev1.Pod) error {
		if len(pods) != 2 {
			return fmt.Errorf("%d pods", len(pods))
		}
		return nil
	})
	select {
	case <-time.After(15 * time.Second):
	case <-t.Context().Done():
	}
	for _, st := range s.statuses() {
		require.Nil(t, st.Shortfall)
	}
	last()
	require.Equal(t, uids(before), uids(s.untilIdle(2)))
	require.Empty(t, s.events("Shortfall"))
	require.Empty(t, s.events("PodFailed"))
}
