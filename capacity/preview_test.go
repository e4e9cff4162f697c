package capacity_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"idlecount.dev/idlecount/capacity"
	"idlecount.dev/idlecount/capacity/status"
	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/factory"
)

// previews is what would be done in the ground's namespace at a time.
func (g *ground) previews(cfg *config.Config, lease string, now time.Time) []capacity.Preview {
	g.t.Helper()
	found, err := capacity.Previews(g.t.Context(), capacity.PreviewOptions{
		Client: g.client, Config: cfg, Lease: lease, Log: slog.New(slog.DiscardHandler), Now: now,
	})
	require.NoError(g.t, err)
	return found
}

// preview is that of the only capacity.
func (g *ground) preview(cfg *config.Config) capacity.Preview {
	g.t.Helper()
	found := g.previews(cfg, "", monday)
	require.Len(g.t, found, 1)
	require.Equal(g.t, g.namespace, found[0].Namespace)
	return found[0]
}

// annotate sets or, with null, takes away annotations of the anchor.
func (g *ground) annotate(annotations string) {
	g.t.Helper()
	_, err := g.client.CoreV1().ConfigMaps(g.namespace).Patch(g.t.Context(), g.token+"-pause", types.MergePatchType,
		[]byte(`{"metadata":{"annotations":`+annotations+`}}`), metav1.PatchOptions{})
	require.NoError(g.t, err)
}

// pausedBy and so on are what `idlecount pause`, `drain` and `resume` write.
const (
	pausedBy  = `{"` + factory.AnnotationPaused + `":"true","` + factory.AnnotationDrained + `":null}`
	drainedBy = `{"` + factory.AnnotationPaused + `":null,"` + factory.AnnotationDrained + `":"true"}`
	resumedBy = `{"` + factory.AnnotationPaused + `":null,"` + factory.AnnotationDrained + `":null}`
)

// TestAPreviewIsWhatTheKeeperDoes: each preview is followed by a keeper that does it.
func TestAPreviewIsWhatTheKeeperDoes(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	keys := []string{`idle_strategy = "pause"`, `idle_time = "10m"`}
	of := func(more ...string) *config.Config { return g.config(append(keys, more...)...) }

	p := g.preview(of("idle_count = 2"))
	require.True(t, p.New)
	require.Equal(t, []int{2, 2, 2, 0}, []int{p.Want, p.Hold, p.Change, p.Pending})
	require.Empty(t, p.Trouble, "our own class is made where it is missing")
	require.Nil(t, g.deployment(), "a preview makes nothing")
	require.Equal(t, status.Status{}, g.status())

	k := g.keep(of("idle_count = 2"))
	await(t, "two are there", func() bool { return len(g.pods(factory.LabelCapacity)) == 2 && g.status().Hold == 2 })
	p = g.preview(of("idle_count = 2"))
	require.Equal(t, capacity.Preview{
		Namespace: g.namespace, Name: g.token + "-pause", Runner: "ci", Strategy: "pause", Policy: "default", Want: 2, Pending: 2, Hold: 2,
	}, p, "nothing is to be done")

	g.job(of("idle_count = 2"), "job")
	more := of("idle_count = 2", "scale_factor = 4.0")
	p = g.preview(more)
	require.Equal(t, []int{1, 4, 4, 2}, []int{p.Jobs, p.Want, p.Hold, p.Change})
	k.reload(more)
	await(t, "so it is", func() bool { return g.replicas() == 4 })

	fewer := of("idle_count = 1")
	p = g.preview(fewer)
	require.Equal(t, []int{1, 4, 0}, []int{p.Want, p.Hold, p.Change})
	require.Equal(t, monday.Add(10*time.Minute), *p.LooksAgain, "what is surplus cools down")
	k.reload(fewer)
	await(t, "it begins to", func() bool { return g.deployment().Annotations[factory.AnnotationSurplusSince] != "" })
	later := g.previews(fewer, "", monday.Add(10*time.Minute))
	require.Equal(t, -3, later[0].Change)
	k.at(monday.Add(10 * time.Minute))
	await(t, "and goes", func() bool { return g.replicas() == 1 })

	larger := of("idle_count = 1", `helper_memory_request = "100Mi"`)
	require.True(t, g.preview(larger).RollsOut)
	before := g.deployment().Annotations[factory.AnnotationTemplate]
	k.reload(larger)
	await(t, "it rolls out", func() bool { return g.deployment().Annotations[factory.AnnotationTemplate] != before })
	require.False(t, g.preview(larger).RollsOut)

	limited := g.configOf("kubernetes", 3, append(keys, "idle_count = 7", `helper_memory_request = "100Mi"`)...)
	p = g.preview(limited)
	require.Equal(t, []int{7, 2, 1}, []int{p.Want, p.Hold, p.Change}, "a job has its part of the limit")
	require.Equal(t, "Limit: limit = 3 leaves room for 2 beside the runner's jobs and idle pods", p.Trouble)
	k.reload(limited)
	await(t, "it holds no more", func() bool { return g.replicas() == 2 && g.status().Trouble != nil })

	require.Equal(t, "pause", g.preview(g.config(`idle_strategy = "buffer"`, "idle_count = 2")).FormerStrategy)

	none := *limited
	none.Runners = nil
	gone := g.previews(&none, g.namespace+"/managers", monday)
	require.Len(t, gone, 1)
	require.True(t, gone[0].Ends)
	require.Equal(t, "removed", gone[0].Policy)
	require.Equal(t, []int{2, -2}, []int{gone[0].Pending, gone[0].Change})
	k.reload(&none)
	await(t, "it ends", func() bool { return g.deployment() == nil && g.status() == status.Status{} })
}

// TestPausedAndDrainedRoom: what the annotations of the anchor do, by the preview and by the keeper.
func TestPausedAndDrainedRoom(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	k := g.keep(g.config(`idle_strategy = "pause"`, "idle_count = 2", `idle_time = "0s"`))
	await(t, "two are there", func() bool { return len(g.pods(factory.LabelCapacity)) == 2 })

	g.annotate(pausedBy)
	more := g.config(`idle_strategy = "pause"`, "idle_count = 4", `idle_time = "0s"`)
	p := g.preview(more)
	require.True(t, p.Paused)
	require.Equal(t, []int{4, 2, 0}, []int{p.Want, p.Hold, p.Change})
	k.reload(more)
	await(t, "four are wanted, two stay", func() bool { s := g.status(); return s.Want == 4 && s.Hold == 2 })
	k.reload(g.config(`idle_strategy = "pause"`, "idle_count = 1", `idle_time = "0s"`))
	await(t, "one is wanted, two stay", func() bool { s := g.status(); return s.Want == 1 && s.Hold == 2 })
	require.Equal(t, 2, g.replicas())

	k.end() // it would be drained before anybody looks
	g.annotate(drainedBy)
	p = g.preview(more)
	require.True(t, p.Drained)
	require.False(t, p.Paused)
	require.Equal(t, []int{0, -2}, []int{p.Hold, p.Change})
	g.keep(more)
	await(t, "all go", func() bool { return g.replicas() == 0 && len(g.pods(factory.LabelCapacity)) == 0 })

	g.annotate(resumedBy)
	await(t, "four are held", func() bool { return len(g.pods(factory.LabelCapacity)) == 4 })
}

// TestAPreviewSeesWhatBoundsAKeeper: quotas and PriorityClasses, as far as who asks may see them.
func TestAPreviewSeesWhatBoundsAKeeper(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	g.quota("requests.cpu", "5")
	keys := []string{`idle_strategy = "pause"`, "idle_count = 10", "idle_quota_headroom = 2"}
	p := g.preview(g.config(keys...))
	require.Equal(t, []int{10, 3, 3}, []int{p.Want, p.Hold, p.Change})
	require.Contains(t, p.Trouble, "Quota: the ResourceQuotas of namespace "+g.namespace+" leave room for 3; room for 2 more jobs is kept free")

	p = g.preview(g.config(append(keys, `autoscaler = {pause_pod_priority_class_name = "missing-`+g.token+`"}`)...))
	require.Zero(t, p.Hold)
	require.Contains(t, p.Trouble, "Priority: the cluster has no PriorityClass missing-"+g.token)

	viewer := g.allowed([]rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods", "configmaps"}, Verbs: []string{"list"}},
		{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: []string{"list"}},
	})
	var log strings.Builder
	found, err := capacity.Previews(t.Context(), capacity.PreviewOptions{
		Client: viewer.client, Config: g.config(keys...), Log: slog.New(slog.NewTextHandler(&log, nil)), Now: monday,
	})
	require.NoError(t, err)
	require.Equal(t, 10, found[0].Hold)
	require.Contains(t, log.String(), "can't see the ResourceQuotas, so the plan goes without them")
	require.Contains(t, log.String(), "can't see the PriorityClasses")
}

// TestAPreviewTakesNoRoomFromManagersThatRun: a lease that is held is respected, one that has lapsed isn't.
func TestAPreviewTakesNoRoomFromManagersThatRun(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	k := g.keep(g.config(`idle_strategy = "pause"`, "idle_count = 2"))
	await(t, "two are there", func() bool { return g.status().Hold == 2 && g.replicas() == 2 })
	k.end()
	renew := func(at time.Time) {
		t.Helper()
		spec := coordinationv1.LeaseSpec{HolderIdentity: new("somebody"), LeaseDurationSeconds: new(int32(9)), RenewTime: new(metav1.NewMicroTime(at))}
		lease, err := g.client.CoordinationV1().Leases(g.namespace).Get(t.Context(), "managers", metav1.GetOptions{})
		require.NoError(t, err)
		lease.Spec = spec
		_, err = g.client.CoordinationV1().Leases(g.namespace).Update(t.Context(), lease, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
	preview := func() capacity.Preview {
		t.Helper()
		found := g.previews(g.config(`idle_strategy = "pause"`, "idle_count = 5"), g.namespace+"/another", monday)
		require.Len(t, found, 1)
		return found[0]
	}
	theirs := g.namespace + "/managers"
	renew(monday.Add(-time.Second))
	p := preview()
	require.Equal(t, fmt.Sprintf("Taken: the managers of lease %s have the capacity, and it is left to them while one of them leads", theirs), p.Trouble)
	require.Equal(t, []int{2, 0}, []int{p.Hold, p.Change})
	require.Empty(t, p.TakenFrom)

	renew(monday.Add(-time.Minute))
	p = preview()
	require.Empty(t, p.Trouble)
	require.Equal(t, []int{5, 3}, []int{p.Hold, p.Change})
	require.Equal(t, theirs, p.TakenFrom)
	require.Empty(t, g.preview(g.config(`idle_strategy = "pause"`, "idle_count = 5")).TakenFrom, "the lease that the capacities name is the one that is meant")
}
