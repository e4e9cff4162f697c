package capacity_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/factory"
)

// TestPausePodsGoWhereBuffersAreWanted, whether the cluster has CapacityBuffers or not.
func TestPausePodsGoWhereBuffersAreWanted(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	k := g.keep(g.config(`idle_strategy = "pause"`, "idle_count = 2"))
	await(t, "two are there", func() bool { return len(g.pods(factory.LabelCapacity)) == 2 && g.status().Hold == 2 })
	k.reload(g.config(`idle_strategy = "buffer"`, "idle_count = 2"))
	await(t, "none is left", func() bool {
		return g.deployment() == nil && len(g.pods(factory.LabelCapacity)) == 0 && g.status().Strategy == config.StrategyBuffer
	})
}

// failing is a ground whose client gets an error for requests that are chosen, as long as they are.
func (g *ground) failing(chosen func(*http.Request) bool) *ground {
	g.t.Helper()
	as := rest.CopyConfig(g.rest)
	as.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if chosen(r) {
				return &http.Response{StatusCode: http.StatusBadGateway, Body: http.NoBody, Request: r}, nil
			}
			return next.RoundTrip(r)
		})
	})
	var err error
	other := *g
	other.client, err = kubernetes.NewForConfig(as)
	require.NoError(g.t, err)
	return &other
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// buffers says whether the capacity's PodTemplate and CapacityBuffer are there.
func (g *ground) buffers() (template, buffer bool) {
	name := g.token + "-pause"
	_, err := g.client.CoreV1().PodTemplates(g.namespace).Get(g.t.Context(), name, metav1.GetOptions{})
	raw := g.client.Discovery().RESTClient().Get().
		AbsPath("/apis/autoscaling.x-k8s.io/v1beta1/namespaces/" + g.namespace + "/capacitybuffers/" + name).Do(g.t.Context()).Error()
	for _, err := range []error{err, raw} {
		require.True(g.t, err == nil || apierrors.IsNotFound(err), "%v", err)
	}
	return err == nil, raw == nil
}

// TestABufferThatPausePodsFollowGoes: also where its deletion fails at first, and where the manager has no rights of buffers any
// more, as `idlecount manifests` has none then. They aren't parallel: the API is there for the whole cluster.
func TestABufferThatPausePodsFollowGoes(t *testing.T) {
	crd := newGround(t)
	crd.define(bufferCRD)
	buffered := func(t *testing.T) *ground {
		t.Helper()
		g := newGround(t)
		k := g.keep(g.config(`idle_strategy = "buffer"`, "idle_count = 3"))
		await(t, "the buffer is there", func() bool {
			template, buffer := g.buffers()
			return template && buffer && g.status().Hold == 3
		})
		k.end()
		return g
	}
	gone := func(g *ground) func() bool {
		return func() bool {
			template, buffer := g.buffers()
			return !template && !buffer && len(g.pods(factory.LabelCapacity)) == 2 &&
				g.status().Strategy == config.StrategyPause && g.status().Trouble == nil
		}
	}
	t.Run("after a failure", func(t *testing.T) {
		g := buffered(t)
		var away atomic.Bool
		away.Store(true)
		k := g.failing(func(r *http.Request) bool {
			return away.Load() && r.Method == http.MethodDelete && strings.Contains(r.URL.Path, "/podtemplates/")
		}).keep(g.config(`idle_strategy = "pause"`, "idle_count = 2", `idle_time = "0s"`))
		await(t, "the failure is said", func() bool { return g.status().Trouble != nil })
		require.Equal(t, config.StrategyBuffer, g.status().Strategy, "it isn't yet as it is wanted")
		require.Equal(t, 3, g.status().Hold)
		away.Store(false)
		k.until("it is done", gone(g))
	})
	t.Run("with an anchor that left it behind", func(t *testing.T) {
		g := buffered(t)
		anchors := g.client.CoreV1().ConfigMaps(g.namespace)
		require.NoError(t, anchors.Delete(t.Context(), g.token+"-pause", metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationOrphan)}))
		await(t, "the anchor has gone", func() bool { return g.status().Strategy == "" })
		k := g.keep(g.config(`idle_strategy = "buffer"`, "idle_count = 3"))
		await(t, "it is kept again", func() bool { return g.status().Strategy == config.StrategyBuffer && g.status().Hold == 3 })
		k.end()
		require.NoError(t, anchors.Delete(t.Context(), g.token+"-pause", metav1.DeleteOptions{}))
		await(t, "it is owned again", func() bool {
			template, buffer := g.buffers()
			return !template && !buffer
		})
	})
	t.Run("without rights", func(t *testing.T) {
		g := buffered(t)
		_, err := g.client.CoreV1().ConfigMaps(g.namespace).Patch(t.Context(), g.token+"-pause", types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"example.com/said": "by the user"}}}`), metav1.PatchOptions{})
		require.NoError(t, err)
		g.asAccount().keep(g.config(`idle_strategy = "pause"`, "idle_count = 2", `idle_time = "0s"`))
		await(t, "the cluster takes it away", gone(g))
		anchor, err := g.client.CoreV1().ConfigMaps(g.namespace).Get(t.Context(), g.token+"-pause", metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, "by the user", anchor.Annotations["example.com/said"])
	})
}
