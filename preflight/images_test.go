package preflight

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn/kubernetes"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

const password = "s3cr3t-of-the-registry"

// registryOf serves an image "there:1"; guard, if there is one, comes before it. It returns its address.
func registryOf(t *testing.T, guard func(http.ResponseWriter, *http.Request) (goOn bool)) string {
	t.Helper()
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	open := httptest.NewServer(inner)
	defer open.Close()
	image, err := random.Image(16, 1)
	require.NoError(t, err)
	ref, err := name.ParseReference(strings.TrimPrefix(open.URL, "http://") + "/there:1")
	require.NoError(t, err)
	require.NoError(t, remote.Write(ref, image))
	guarded := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if guard == nil || guard(w, r) {
			inner.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(guarded.Close)
	return strings.TrimPrefix(guarded.URL, "http://")
}

// basic wants one user's password, as registries do that have no token server.
func basic(w http.ResponseWriter, r *http.Request) bool {
	if user, given, _ := r.BasicAuth(); user == "puller" && given == password {
		return true
	}
	w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
	w.WriteHeader(http.StatusUnauthorized)
	return false
}

// answer says nothing but a status, to whatever is asked beyond "do you speak our language".
func answer(status int) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/v2/" {
			return true
		}
		w.WriteHeader(status)
		return false
	}
}

// pullSecret is a login as kubectl create secret docker-registry makes it.
func pullSecret(t *testing.T, host, user, password string) []byte {
	t.Helper()
	b, err := json.Marshal(map[string]any{"auths": map[string]any{host: map[string]string{
		"username": user, "password": password, "auth": base64.StdEncoding.EncodeToString([]byte(user + ":" + password)),
	}}})
	require.NoError(t, err)
	return b
}

func loginFor(t *testing.T, secret, host, user, password string) login {
	t.Helper()
	keychain, err := kubernetes.NewFromPullSecrets(t.Context(), []corev1.Secret{{
		Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: pullSecret(t, host, user, password)},
	}})
	require.NoError(t, err)
	return login{secret: secret, keychain: keychain}
}

func TestImagesOfARegistry(t *testing.T) {
	open, locked := registryOf(t, nil), registryOf(t, basic)
	right, wrong := loginFor(t, "right", locked, "puller", password), loginFor(t, "wrong", locked, "puller", "s3cr3t-that-is-old")
	elsewhere, unreadable := loginFor(t, "elsewhere", "registry.example.com", "puller", password), login{secret: "hidden", err: io.EOF}
	for sentence, c := range map[string]struct {
		image   string
		policy  corev1.PullPolicy
		logins  []login
		status  Status
		message string
	}{
		"an image that is there":                   {open + "/there:1", "", nil, OK, "exists"},
		"a login that isn't asked for":             {open + "/there:1", "", []login{right}, OK, "exists"},
		"a tag that isn't there":                   {open + "/there:2", "", nil, Fail, "doesn't exist: " + open + " has no there:2"},
		"a name that isn't there":                  {open + "/nowhere:1", "", nil, Fail, "doesn't exist: " + open + " has no nowhere:1"},
		"a digest that isn't there":                {open + "/there@sha256:" + strings.Repeat("0", 64), "", nil, Fail, "doesn't exist: " + open + " has no there@sha256:" + strings.Repeat("0", 64)},
		"a login that is right":                    {locked + "/there:1", "", []login{right}, OK, "exists, with the login in secret right"},
		"a right login after a wrong one":          {locked + "/there:1", "", []login{elsewhere, wrong, right}, OK, "exists, with the login in secret right"},
		"a tag that isn't there, for a login":      {locked + "/there:2", "", []login{right}, Fail, "doesn't exist: " + locked + " has no there:2"},
		"no login where one is wanted":             {locked + "/there:1", "", nil, Warn, locked + " wants a login, or has no such image, and no pull secret of the pod is for it"},
		"a login for another registry":             {locked + "/there:1", "", []login{elsewhere}, Warn, locked + " wants a login, or has no such image, and no pull secret of the pod is for it"},
		"a login that is refused":                  {locked + "/there:1", "", []login{wrong}, Fail, locked + " refuses the login in secret wrong, or has no such image"},
		"two logins that are refused":              {locked + "/there:1", "", []login{wrong, wrong}, Fail, locked + " refuses the login in secret wrong and in wrong, or has no such image"},
		"a login that we may not see":              {locked + "/there:1", "", []login{unreadable}, Unknown, locked + " wants a login, and the one in secret hidden can't be read"},
		"a login that we may not see, nor need":    {open + "/there:1", "", []login{unreadable}, OK, "exists"},
		"a registry that is in trouble":            {registryOf(t, answer(500)) + "/there:1", "", nil, Unknown, "can't be asked for from here: it answers with HTTP status 500 Internal Server Error"},
		"a registry that has had enough":           {registryOf(t, answer(429)) + "/there:1", "", nil, Unknown, "can't be asked for from here: it answers with HTTP status 429 Too Many Requests"},
		"a registry that forbids":                  {registryOf(t, answer(403)) + "/there:1", "", nil, Warn, "wants a login"},
		"a registry that isn't there":              {"127.0.0.1:1/there:1", "", nil, Unknown, "can't be asked for from here: connection refused"},
		"what can't be an image":                   {"UPPER:1:2", "", nil, Fail, "is no name that an image can have"},
		"an image that the nodes have or have not": {open + "/nowhere:1", corev1.PullNever, nil, Unknown, "pull_policy is never: each node has to have it already"},
	} {
		t.Run(sentence, func(t *testing.T) {
			r := reference{namespace: "ci", image: c.image, policy: c.policy}.check(t.Context(), c.logins)
			require.Equal(t, c.status, r.Status, r.Message)
			require.Contains(t, r.Message, c.message)
			require.Equal(t, c.image, r.Object)
			if c.status != OK && c.policy == "" {
				require.NotEmpty(t, r.Fix)
			}
			encoded, err := json.Marshal(r)
			require.NoError(t, err)
			require.NotContains(t, string(encoded), "s3cr3t")
			require.NotContains(t, string(encoded), "puller")
		})
	}
}

// TestATokenServerThatRefuses: the address of a token server has the user's name in it, and some quote it in their answer.
func TestATokenServerThatRefuses(t *testing.T) {
	host := ""
	host = registryOf(t, func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/token" {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"errors":[{"code":"UNAUTHORIZED","message":"puller may not"}]}`)
			return false
		}
		w.Header().Set("WWW-Authenticate", `Bearer realm="http://`+r.Host+`/token",service="registry"`)
		w.WriteHeader(http.StatusUnauthorized)
		return false
	})
	r := reference{image: host + "/there:1"}.check(t.Context(), []login{loginFor(t, "old", host, "puller", password)})
	require.Equal(t, Fail, r.Status)
	require.Equal(t, host+" refuses the login in secret old, or has no such image", r.Message)
}

func TestEachImageIsAskedForOnce(t *testing.T) {
	pod := func(namespace, secret string, images ...string) *target {
		p := &corev1.Pod{}
		p.Namespace = namespace
		if secret != "" {
			p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: secret}}
		}
		p.Spec.InitContainers = []corev1.Container{{Image: "init"}}
		for _, image := range images {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Image: image})
		}
		return &target{pod: p}
	}
	require.Equal(t, []reference{
		{"", "init", "", ""}, {"", "a", "", ""}, {"", "b", "", ""},
		{"ci", "init", "", "s"}, {"ci", "a", "", "s"},
		{"other", "init", "", "s"}, {"other", "a", "", "s"},
	}, referencesOf([]*target{
		pod("ci", "", "a", "b"), pod("other", "", "b"), pod("ci", "s", "a"), pod("other", "s", "a"),
	}))
}
