package pool_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/pool"
	"idlecount.dev/idlecount/pool/plan"
)

// preview returns what would be done in the ground's namespace, by pool.
func (g *ground) preview(c *config.Config) map[string]pool.Preview {
	g.t.Helper()
	previews, _, err := pool.Previews(g.t.Context(), pool.PreviewOptions{Client: g.client, Config: c, Log: slog.New(slog.DiscardHandler), Now: time.Now()})
	require.NoError(g.t, err)
	byName := map[string]pool.Preview{}
	for _, p := range previews {
		require.Equal(g.t, g.namespace, p.Namespace)
		byName[p.Name] = p
	}
	return byName
}

func only(t *testing.T, previews map[string]pool.Preview) pool.Preview {
	t.Helper()
	require.Len(t, previews, 1)
	for _, p := range previews {
		return p
	}
	return pool.Preview{}
}

func reasons(p pool.Preview) map[plan.Reason]int {
	n := map[plan.Reason]int{}
	for _, d := range p.Delete {
		n[d.Reason]++
	}
	return n
}

// TestAPreviewIsWhatTheManagerDoes: each preview is followed by a manager that does it, and nothing is written in between.
func TestAPreviewIsWhatTheManagerDoes(t *testing.T) {
	t.Parallel()
	g := newGround(t).needsKWOK()
	c := g.config("idle_count = 200", kwok) // more than one pass creates
	p := only(t, g.preview(c))
	require.True(t, p.New)
	require.Equal(t, 200, p.Create)
	require.Empty(t, p.Delete)
	require.Empty(t, g.view.all(), "a preview makes nothing")
	require.Empty(t, g.anchorNames())

	c = g.config("idle_count = 4", kwok)
	m := g.manage(c)
	g.view.awaitPods(t, 4, factory.Idle)
	m.stop()
	p = only(t, g.preview(c))
	require.False(t, p.New)
	require.Equal(t, "default", p.Policy)
	require.Equal(t, []int{4, 4, 0, 0}, []int{p.Want, p.Idle, p.Create, len(p.Delete)})

	t.Run("more are wanted", func(t *testing.T) {
		require.Equal(t, 3, only(t, g.preview(g.config("idle_count = 7", kwok))).Create)
	})
	t.Run("fewer are wanted, whose time is over", func(t *testing.T) {
		require.Equal(t, map[plan.Reason]int{plan.DeleteSurplus: 3}, reasons(only(t, g.preview(g.config("idle_count = 1", `idle_time = "0s"`, kwok)))))
	})
	t.Run("a limit", func(t *testing.T) {
		require.Equal(t, 1, only(t, g.preview(g.configLimited(5, "idle_count = 7", kwok))).Create)
	})
	t.Run("another shape: the new pods come first", func(t *testing.T) {
		previews := g.preview(g.config("idle_count = 4", `cpu_request = "1m"`, kwok))
		require.Len(t, previews, 2)
		old := g.anchorNames()[0]
		for name, p := range previews {
			if name == old {
				require.Equal(t, "replaced", p.Policy)
				require.Empty(t, p.Delete, "none is ready in its place")
				require.NotEmpty(t, p.ReplacedBy)
				require.Contains(t, previews, p.ReplacedBy)
				continue
			}
			require.True(t, p.New)
			require.Positive(t, p.Create)
			require.LessOrEqual(t, p.Create, plan.Surge(4))
		}
	})
	t.Run("the runner has left the file", func(t *testing.T) {
		none := g.config("idle_count = 0", kwok)
		p := only(t, g.preview(none))
		require.Equal(t, "removed", p.Policy)
		require.Equal(t, map[plan.Reason]int{plan.DeleteRemoved: 4}, reasons(p))
	})
	t.Run("paused and drained", func(t *testing.T) {
		annotate := func(value string) {
			_, err := g.client.CoreV1().ConfigMaps(g.namespace).Patch(t.Context(), g.anchorNames()[0], types.MergePatchType,
				[]byte(`{"metadata":{"annotations":`+value+`}}`), metav1.PatchOptions{})
			require.NoError(t, err)
		}
		annotate(`{"` + factory.AnnotationPaused + `":"true"}`)
		p := only(t, g.preview(g.config("idle_count = 7", kwok)))
		require.True(t, p.Paused)
		require.Zero(t, p.Create)
		annotate(`{"` + factory.AnnotationPaused + `":null,"` + factory.AnnotationDrained + `":"true"}`)
		p = only(t, g.preview(g.config("idle_count = 7", kwok)))
		require.True(t, p.Drained)
		require.Equal(t, map[plan.Reason]int{plan.DeleteDrained: 4}, reasons(p))

		// And it is what is done.
		g.manage(g.config("idle_count = 7", kwok))
		g.view.await(t, "the drained pool is empty", func() bool { return len(g.view.in(factory.Idle, factory.Warming)) == 0 })
	})
}

func TestAPreviewLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	anchor := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "other", Labels: map[string]string{factory.LabelPool: "other", factory.LabelRunner: "somebody"}},
		Data:       map[string]string{factory.AnchorStatusKey: `{"lease":"else/where"}`},
	}
	_, err := g.client.CoreV1().ConfigMaps(g.namespace).Create(t.Context(), anchor, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NotContains(t, g.preview(g.config("idle_count = 1")), "other")
}

// TestAPreviewTakesNothingFromManagersThatRun: it says what a manager would do, and that one would leave the pool alone.
func TestAPreviewTakesNothingFromManagersThatRun(t *testing.T) {
	t.Parallel()
	g := newGround(t).needsKWOK()
	m := g.manage(g.config("idle_count = 2", kwok))
	g.view.awaitPods(t, 2, factory.Idle)
	preview := func() pool.Preview {
		found, _, err := pool.Previews(t.Context(), pool.PreviewOptions{
			Client: g.client, Config: g.config("idle_count = 5", kwok), Lease: g.namespace + "/another", Log: slog.New(slog.DiscardHandler), Now: time.Now(),
		})
		require.NoError(t, err)
		require.Len(t, found, 1)
		return found[0]
	}
	p := preview()
	require.Zero(t, p.Create)
	require.Equal(t, "Taken: the managers of lease "+g.namespace+"/idlecount have the pool, and it is left to them while one of them leads", p.Shortfall)
	require.Empty(t, p.TakenFrom)
	m.stop()
	p = preview()
	require.Equal(t, 3, p.Create)
	require.Equal(t, g.namespace+"/idlecount", p.TakenFrom)
}
