package status_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/internal/leases"
	"idlecount.dev/idlecount/pool/status"
)

var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

func anchor(namespace, name string, s *status.Status) corev1.ConfigMap {
	cm := corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name,
		Labels:      map[string]string{factory.LabelPool: name, factory.LabelRunner: "abcdefghi", factory.LabelShape: "5ha9e"},
		Annotations: map[string]string{factory.AnnotationImage: "alpine:3.22"},
	}}
	if s != nil {
		cm.Data = map[string]string{factory.AnchorStatusKey: s.Encode()}
	}
	return cm
}

// pod is a pod of pool "ci/p" created a minute before noon; changes make it what a test needs.
func pod(name string, changes ...func(*corev1.Pod)) corev1.Pod {
	p := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ci", Name: name, CreationTimestamp: metav1.NewTime(noon.Add(-time.Minute)),
			Labels: map[string]string{
				factory.LabelPool: "p", factory.LabelRunner: "abcdefghi", factory.LabelShape: "5ha9e", factory.LabelState: factory.StateIdle,
			},
			Annotations: map[string]string{factory.AnnotationImage: "golang:1.26"},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	for _, change := range changes {
		change(&p)
	}
	return p
}

func ready(since time.Time) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodRunning
		p.Spec.NodeName = "node-1"
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(since)}}
	}
}

func claimed(job string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Labels[factory.LabelState] = factory.StateClaimed
		p.Labels[factory.LabelJob] = job
		p.Annotations[factory.AnnotationWarmth] = "warm"
		p.Annotations[factory.AnnotationClaimedAt] = noon.Add(-10 * time.Second).Format(time.RFC3339)
	}
}

func phase(phase corev1.PodPhase) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Phase = phase }
}

func inPool(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels[factory.LabelPool] = name }
}

func born(at time.Time) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(at) }
}

func ending(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.NewTime(noon)) }

func TestPoolsCountEachPhaseApart(t *testing.T) {
	st := &status.Status{Runner: "ci", Image: "alpine:3.22", Shape: "5ha9e", Policy: "default", Want: 5, IdleTime: "30m0s", Lease: "idlecount/idlecount"}
	rows := status.Pools([]corev1.ConfigMap{anchor("ci", "p", st)}, []corev1.Pod{
		pod("warming-late", born(noon.Add(-5*time.Second))),
		pod("warming-first", born(noon.Add(-50*time.Second))),
		pod("idle-young", ready(noon.Add(-time.Minute))),
		pod("idle-old", ready(noon.Add(-time.Hour))),
		pod("claimed", ready(noon.Add(-2*time.Hour)), claimed("42")),
		pod("claimed-warming", claimed("43")),
		pod("failed", phase(corev1.PodFailed)),
		pod("expired", phase(corev1.PodSucceeded)),
		pod("finished", claimed("41"), phase(corev1.PodSucceeded)),
		pod("ending-idle", ready(noon.Add(-3*time.Hour)), ending),
		pod("of-no-pool", ready(noon), inPool("")),
	}, false)
	require.Equal(t, []status.Pool{{
		Namespace: "ci", Name: "p", Runner: "ci", Image: "alpine:3.22", Shape: "5ha9e", Policy: "default", Managed: true,
		Want: 5, Idle: 2, Warming: 2, Claimed: 2, Failed: 1, Short: 3, IdleTime: "30m0s", Lease: "idlecount/idlecount",
		OldestIdle: new(noon.Add(-time.Hour)), OldestWarming: new(noon.Add(-50 * time.Second)),
	}}, rows)
}

func TestPoolsWithPodsListThemInTheOrderOfALife(t *testing.T) {
	rows := status.Pools([]corev1.ConfigMap{anchor("ci", "p", nil)}, []corev1.Pod{
		pod("d-claimed", ready(noon.Add(-time.Hour)), claimed("42")),
		pod("c-idle", ready(noon.Add(-time.Minute))),
		pod("b-idle", ready(noon.Add(-2*time.Minute))),
		pod("a-ending", ending),
		pod("e-warming"),
	}, true)
	require.Len(t, rows, 1)
	require.Equal(t, []status.Pod{
		{Name: "e-warming", Phase: factory.Warming, Created: noon.Add(-time.Minute)},
		{Name: "b-idle", Phase: factory.Idle, Node: "node-1", Created: noon.Add(-time.Minute), IdleSince: new(noon.Add(-2 * time.Minute))},
		{Name: "c-idle", Phase: factory.Idle, Node: "node-1", Created: noon.Add(-time.Minute), IdleSince: new(noon.Add(-time.Minute))},
		{
			Name: "d-claimed", Phase: factory.Claimed, Node: "node-1", Created: noon.Add(-time.Minute),
			Warmth: "warm", Job: "42", ClaimedAt: new(noon.Add(-10 * time.Second)),
		},
		{Name: "a-ending", Phase: factory.Ending, Created: noon.Add(-time.Minute)},
	}, rows[0].Pods)
}

func TestPoolsWithoutAnAnchor(t *testing.T) {
	t.Run("a cold job's pod makes a row", func(t *testing.T) {
		rows := status.Pools(nil, []corev1.Pod{pod("job", ready(noon), claimed("42"), inPool("other"))}, false)
		require.Equal(t, []status.Pool{{
			Namespace: "ci", Name: "other", Runner: "abcdefghi", Image: "golang:1.26", Shape: "5ha9e", Claimed: 1,
		}}, rows)
		require.Equal(t, "no pool has this shape: its jobs start cold", rows[0].Reason(nil, noon))
	})
	t.Run("pods that are on their way out don't", func(t *testing.T) {
		require.Empty(t, status.Pools(nil, []corev1.Pod{
			pod("finished", claimed("1"), phase(corev1.PodSucceeded)), pod("ending", ending), pod("expired", phase(corev1.PodSucceeded)),
		}, false))
	})
	t.Run("a ConfigMap of another name with the pool's label is not its anchor", func(t *testing.T) {
		cm := anchor("ci", "p", nil)
		cm.Name = "copy-of-p"
		require.Empty(t, status.Pools([]corev1.ConfigMap{cm}, nil, false))
	})
}

func TestPoolsOfTwoNamespacesDontMix(t *testing.T) {
	elsewhere := pod("idle", ready(noon))
	elsewhere.Namespace = "other"
	rows := status.Pools([]corev1.ConfigMap{
		anchor("other", "p", &status.Status{Want: 1}), anchor("ci", "q", &status.Status{}), anchor("ci", "p", &status.Status{Want: 2}),
	}, []corev1.Pod{elsewhere}, false)
	require.Len(t, rows, 3)
	require.Equal(t, []string{"ci/p 0 2", "ci/q 0 0", "other/p 1 0"}, []string{summary(rows[0]), summary(rows[1]), summary(rows[2])})
}

func summary(p status.Pool) string {
	return p.Namespace + "/" + p.Name + " " + string(rune('0'+p.Idle)) + " " + string(rune('0'+p.Short))
}

func TestReason(t *testing.T) {
	warming := new(noon.Add(-12 * time.Second))
	for sentence, c := range map[string]struct {
		pool    status.Pool
		manager *status.Manager
		want    string
	}{
		"a full pool needs none": {pool: status.Pool{Managed: true, Want: 2, Idle: 2}},
		"the manager's shortfall, folded into one line": {
			pool: status.Pool{Managed: true, Short: 2, Warming: 1, OldestWarming: warming, Shortfall: &status.Shortfall{
				Reason: status.ImagePull, Message: "Back-off pulling image \"x\":\n  not found", Since: noon.Add(-3 * time.Minute),
			}},
			want: `2 short: ImagePull for 3m: Back-off pulling image "x": not found`,
		},
		"a shortfall that is over says nothing": {
			pool: status.Pool{Managed: true, Want: 1, Idle: 1, Shortfall: &status.Shortfall{Reason: status.Quota, Since: noon}},
		},
		"a full pool whose pods can't be replaced by those of a changed configuration": {
			pool: status.Pool{Managed: true, Want: 1, Idle: 1, Shortfall: &status.Shortfall{
				Reason: status.ImagePull, Message: "entrypoint:2: not found", Since: noon.Add(-time.Minute), Replacing: true,
			}},
			want: "replacements of the idle pods, which a changed configuration asks for, are missing: ImagePull for 60s: entrypoint:2: not found",
		},
		"pods that warm": {
			pool: status.Pool{Managed: true, Short: 3, Warming: 2, OldestWarming: warming},
			want: "3 short: 2 warming, the first for 12s",
		},
		"nobody manages the pool": {
			pool: status.Pool{Managed: true, Short: 1}, manager: &status.Manager{State: leases.Lapsed},
			want: "1 short: no manager runs",
		},
		"a manager that has not acted yet": {
			pool: status.Pool{Managed: true, Short: 1}, manager: &status.Manager{State: leases.Held},
			want: "1 short: the manager has named no reason yet",
		},
		"a lease that can't be read blames nobody": {
			pool: status.Pool{Managed: true, Short: 1}, manager: &status.Manager{State: leases.Unknown},
			want: "1 short: the manager has named no reason yet",
		},
		"a paused pool that is full": {pool: status.Pool{Managed: true, Paused: true}, want: "paused; `idlecount resume` ends that"},
		"a paused pool that isn't, whatever else keeps it so": {
			pool: status.Pool{Managed: true, Paused: true, Short: 2, Shortfall: &status.Shortfall{Reason: status.Quota, Since: noon}},
			want: "2 short: paused; `idlecount resume` fills the pool again",
		},
		"a drained pool": {
			pool: status.Pool{Managed: true, Drained: true, Want: 3, Claimed: 1}, want: "drained; `idlecount resume` fills the pool again",
		},
		"a drained pool whose pods still go": {
			pool: status.Pool{Managed: true, Drained: true, Idle: 2, Warming: 1}, manager: &status.Manager{State: leases.Held},
			want: "drained: idle pods go (3 left); `idlecount resume` fills the pool again",
		},
		"a drained pool that nobody drains": {
			pool: status.Pool{Managed: true, Drained: true, Idle: 2}, manager: &status.Manager{State: leases.Absent},
			want: "drained, but no manager runs to remove its idle pods (2 left); `idlecount resume` fills the pool again",
		},
		"a replaced pool that still has idle pods": {
			pool: status.Pool{Managed: true, ReplacedBy: "q", Idle: 2, Warming: 1, Claimed: 1},
			want: "replaced by q: pods without a job go as that one's become Ready (3 left)",
		},
		"a replaced pool that only has jobs": {pool: status.Pool{Managed: true, ReplacedBy: "q", Claimed: 1}, want: "replaced by q once its jobs are over (1 left)"},
		"a replaced pool that has nothing":   {pool: status.Pool{Managed: true, ReplacedBy: "q"}, want: "replaced by q"},
		"a since in the future, from another clock": {
			pool: status.Pool{Managed: true, Short: 1, Shortfall: &status.Shortfall{Reason: status.Quota, Message: "no", Since: noon.Add(time.Minute)}},
			want: "1 short: Quota for 0s: no",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			require.Equal(t, c.want, c.pool.Reason(c.manager, noon))
		})
	}
}

func TestAnchorsThatCannotBeRead(t *testing.T) {
	fresh, broken := anchor("ci", "fresh", nil), anchor("ci", "broken", nil)
	broken.Data = map[string]string{factory.AnchorStatusKey: "{"}
	rows := status.Pools([]corev1.ConfigMap{fresh, broken}, []corev1.Pod{pod("idle", ready(noon), inPool("broken"))}, false)
	require.Len(t, rows, 2)
	require.Equal(t, 1, rows[0].Idle, "pods are counted all the same")
	require.Equal(t, "alpine:3.22", rows[0].Image, "the anchor's annotation names the image")
	require.Equal(t, "read the status in ConfigMap ci/broken: unexpected end of JSON input", rows[0].Reason(nil, noon))
	require.Equal(t, "no manager has written its status yet", rows[1].Reason(nil, noon))
}

func TestAReplacedPoolLacksNothing(t *testing.T) {
	rows := status.Pools([]corev1.ConfigMap{anchor("ci", "p", &status.Status{Want: 2, ReplacedBy: "q", ConfigError: "line 3: no"})}, nil, false)
	require.Len(t, rows, 1)
	require.Equal(t, "q 0 line 3: no", rows[0].ReplacedBy+" "+string(rune('0'+rows[0].Short))+" "+rows[0].ConfigError)
}

func TestWhatPeopleHaveToldThePool(t *testing.T) {
	for sentence, c := range map[string]struct {
		annotations     map[string]string
		paused, drained bool
		short           int
	}{
		"nothing":            {nil, false, false, 2},
		"to pause":           {map[string]string{factory.AnnotationPaused: "true"}, true, false, 2},
		"to drain":           {map[string]string{factory.AnnotationDrained: "true"}, false, true, 0},
		"both, by hand":      {map[string]string{factory.AnnotationPaused: "true", factory.AnnotationDrained: "true"}, false, true, 0},
		"something else":     {map[string]string{factory.AnnotationPaused: "yes", factory.AnnotationDrained: "false"}, false, false, 2},
		"before its manager": {map[string]string{factory.AnnotationDrained: "true"}, false, true, 0},
	} {
		t.Run(sentence, func(t *testing.T) {
			cm := anchor("ci", "p", &status.Status{Want: 2})
			if sentence == "before its manager" {
				cm.Data = nil
			}
			cm.Annotations = c.annotations
			rows := status.Pools([]corev1.ConfigMap{cm}, nil, false)
			require.Len(t, rows, 1)
			require.Equal(t, c.paused, rows[0].Paused)
			require.Equal(t, c.drained, rows[0].Drained)
			require.Equal(t, c.short, rows[0].Short)
		})
	}
}

func TestManagerOf(t *testing.T) {
	lease := func(holder string, renewed time.Duration) *coordinationv1.Lease {
		return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseDurationSeconds: new(int32(15)), RenewTime: new(metav1.NewMicroTime(noon.Add(renewed))),
		}}
	}
	for sentence, c := range map[string]struct {
		lease   *coordinationv1.Lease
		state   leases.State
		warning string
	}{
		"no lease":                         {nil, leases.Absent, "no manager runs: there is no lease idlecount/lock, idle pods are not refilled; start `idlecount run`"},
		"renewed just now":                 {lease("pod-a", -2*time.Second), leases.Held, ""},
		"renewed by a clock that is ahead": {lease("pod-a", time.Minute), leases.Held, ""},
		"not renewed for its duration": {
			lease("pod-a", -5*time.Minute), leases.Lapsed, "no manager holds the lease idlecount/lock (pod-a renewed it 5m ago): idle pods are not refilled",
		},
		"released at the end of a manager": {
			lease("", -time.Second), leases.Lapsed, "no manager holds the lease idlecount/lock: idle pods are not refilled",
		},
		"made and never held": {
			&coordinationv1.Lease{}, leases.Lapsed, "no manager holds the lease idlecount/lock: idle pods are not refilled",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			m := status.ManagerOf("idlecount/lock", c.lease, noon)
			require.Equal(t, c.state, m.State)
			require.Equal(t, c.warning, m.Warning(noon, "idle pods are not refilled"))
		})
	}
}

func TestStatusSurvivesItsEncoding(t *testing.T) {
	in := status.Status{
		Runner: "ci", Image: "alpine:3.22", Shape: "s", Template: "t", Policy: "idle_policy[0]", Want: 3, IdleTime: "30m0s",
		NextChange: new(noon), Lease: "idlecount/lock",
		Shortfall: &status.Shortfall{Reason: status.Crash, Message: "x", Since: noon},
	}
	cm := anchor("ci", "p", &in)
	out, err := status.Of(&cm)
	require.NoError(t, err)
	require.Equal(t, in, out)
}
