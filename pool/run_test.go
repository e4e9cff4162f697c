package pool_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/pool"
	"idlecount.dev/idlecount/pool/status"
)

func TestAPoolIsFilledAndRefilled(t *testing.T) {
	t.Parallel()
	g := newGround(t).needsKWOK()
	c := g.config("idle_count = 3", kwok)
	m := g.manage(c)
	idle := g.view.awaitPods(t, 3, factory.Idle)

	name := ""
	for found, s := range g.view.statuses() {
		name = found
		require.Equal(t, "ci", s.Runner)
		require.Equal(t, "job:1", s.Image)
		require.Equal(t, "default", s.Policy)
		require.Equal(t, 3, s.Want)
		require.Equal(t, "30m0s", s.IdleTime)
		require.Equal(t, g.namespace+"/idlecount", s.Lease)
		require.Nil(t, s.Shortfall)
	}
	anchor, err := g.client.CoreV1().ConfigMaps(g.namespace).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	for _, pod := range idle {
		require.Equal(t, name, pod.Labels[factory.LabelPool])
		require.Len(t, pod.OwnerReferences, 1)
		require.Equal(t, anchor.UID, pod.OwnerReferences[0].UID)
	}

	claimed := g.claim(c, "4711")
	g.view.await(t, "the claimed pod is replaced", func() bool {
		return len(g.view.in(factory.Idle)) == 3 && len(g.view.in(factory.Claimed)) == 1
	})
	require.Contains(t, idle, claimed.Name)
	g.delete(claimed)
	g.view.await(t, "the claimed pod is gone", func() bool { return len(g.view.all()) == 3 })
	g.view.awaitPods(t, 3, factory.Idle)
	await(t, "the metrics count it", func() bool {
		return m.metric("idlecount_claims_total", "result", "warm", "pool", name, "image", "job:1") == 1 &&
			m.metric("idlecount_pods", "state", "idle", "pool", name) == 3 && m.metric("idlecount_pods_wanted") == 3 &&
			m.metric("idlecount_pod_ready_seconds") == 4 && m.metric("idlecount_pods_created_total", "result", "ok") == 4 &&
			m.metric("idlecount_leader") == 1 && m.metric("idlecount_pods_deleted_total") == 0 &&
			m.metric("idlecount_refill_seconds", "pool", name, "namespace", g.namespace, "runner", "ci") == 1 &&
			m.metric("idlecount_pod_seconds_total", "state", "idle", "pool", name) >= 3
	})
}

// await waits for what no watch shows.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	require.Eventually(t, holds, patience, 20*time.Millisecond, what)
}

func TestSurplusGoesWhenItsTimeIsOverAndClaimedPodsStay(t *testing.T) {
	t.Parallel()
	g := newGround(t).needsKWOK()
	c := g.config("idle_count = 4", kwok)
	m := g.manage(c)
	g.view.awaitPods(t, 4, factory.Idle)
	claimed := g.claim(c, "1")
	g.view.await(t, "the claimed pod is replaced", func() bool {
		return len(g.view.in(factory.Idle)) == 4 && len(g.view.in(factory.Claimed)) == 1
	})
	m.stop()

	m = g.manage(g.config("idle_count = 1", `idle_time = "1s"`, kwok))
	g.view.await(t, "the surplus is gone", func() bool { return len(g.view.in(factory.Idle, factory.Warming)) == 1 })
	require.Contains(t, g.view.in(factory.Claimed), claimed.Name)
	await(t, "the metric says why", func() bool { return m.metric("idlecount_pods_deleted_total", "reason", "surplus") == 3 })
}

func TestARestartKeepsEveryPod(t *testing.T) {
	t.Parallel()
	g := newGround(t).needsKWOK()
	c := g.config("idle_count = 5", kwok)
	m := g.manage(c)
	before := uids(g.view.awaitPods(t, 5, factory.Idle))
	m.stop()
	m = g.manage(c)
	await(t, "the new manager has looked at the pool", func() bool { return m.metric("idlecount_pods", "state", "idle") == 5 })
	require.Equal(t, before, uids(g.view.awaitPods(t, 5, factory.Idle)))
	require.Zero(t, m.metric("idlecount_api_writes_total"), "nothing had to be written")
}

func uids(pods map[string]*corev1.Pod) map[types.UID]bool {
	found := map[types.UID]bool{}
	for _, pod := range pods {
		found[pod.UID] = true
	}
	return found
}

func TestOfTwoManagersOneLeads(t *testing.T) {
	t.Parallel()
	g := newGround(t).needsKWOK()
	c := g.config("idle_count = 3", kwok)
	g.neverMoreThan(3)
	first := g.manage(c)
	before := uids(g.view.awaitPods(t, 3, factory.Idle))
	second := g.manage(c)
	second.log.await(t, "another manager leads")
	require.Equal(t, 1, first.metric("idlecount_leader"))
	require.Zero(t, second.metric("idlecount_leader"))
	await(t, "a manager that stands by is ready", func() bool { return second.get("/readyz").code == http.StatusOK })

	first.stop()
	await(t, "the second one leads", func() bool { return second.metric("idlecount_pods", "state", "idle") == 3 })
	require.Equal(t, before, uids(g.view.awaitPods(t, 3, factory.Idle)))
	g.claim(c, "1")
	g.view.await(t, "the second one refills", func() bool {
		return len(g.view.in(factory.Idle)) == 3 && len(g.view.in(factory.Claimed)) == 1
	})
	require.Zero(t, second.metric("idlecount_api_writes_total", "operation", "patch anchor"))
}

// neverMoreThan checks at each event that the pool has at most n unclaimed pods.
func (g *ground) neverMoreThan(n int) {
	g.view.always(g.t, func(pods []*corev1.Pod) error {
		unclaimed := 0
		for _, pod := range pods {
			if phase := factory.PhaseOf(pod); phase == factory.Warming || phase == factory.Idle {
				unclaimed++
			}
		}
		if unclaimed > n {
			return fmt.Errorf("%d unclaimed pods of %d", unclaimed, n)
		}
		return nil
	})
}

func TestALaggingWatchMakesNoPodTooMany(t *testing.T) {
	t.Parallel()
	g := newGround(t).needsKWOK()
	c := g.config("idle_count = 20", kwok)
	g.neverMoreThan(20)
	m := g.manage(c, lagging(700*time.Millisecond))
	g.view.awaitPods(t, 20, factory.Idle)
	var claimed int
	for range 3 {
		for range 5 {
			claimed++
			g.claim(c, fmt.Sprint(claimed))
		}
		g.view.await(t, "the pool is refilled", func() bool {
			return len(g.view.in(factory.Idle)) == 20 && len(g.view.in(factory.Claimed)) == claimed
		})
	}
	await(t, "the manager has seen all", func() bool {
		return m.metric("idlecount_pods", "state", "idle") == 20 && m.metric("idlecount_pods", "state", "claimed") == 15
	})
	require.Equal(t, 35, m.metric("idlecount_pods_created_total", "result", "ok"))
	require.Zero(t, m.metric("idlecount_pods_deleted_total"))
}

func TestALimitHoldsAcrossPoolsWithALaggingWatch(t *testing.T) {
	t.Parallel()
	g := newGround(t).needsKWOK()
	g.neverMoreThan(7)
	c := g.configLimited(7, "idle_count = 5", `idle_images = ["job:1", "job:2"]`, kwok)
	m := g.manage(c, lagging(500*time.Millisecond))
	g.view.awaitPods(t, 7, factory.Idle)
	short := g.view.awaitShortfall(t, status.Limit)
	require.Contains(t, short.Message, "limit is 7")
	await(t, "the manager has seen all", func() bool { return m.metric("idlecount_pods", "state", "idle") == 7 })
	require.Equal(t, 7, m.metric("idlecount_pods_created_total", "result", "ok"))

	// A job of an image that no pool has is the runner's too.
	shape, err := factory.ShapeOf(c.Runners[0], factory.Job{Image: "job:3"})
	require.NoError(t, err)
	cold, err := g.client.CoreV1().Pods(g.namespace).Create(t.Context(),
		factory.JobPod(c.Runners[0], shape, "cold", factory.JobMeta{ID: "1", ClaimedAt: time.Now()}), metav1.CreateOptions{})
	require.NoError(t, err)
	g.view.awaitPods(t, 6, factory.Idle)
	await(t, "the metrics say why", func() bool { return m.metric("idlecount_pods_deleted_total", "reason", "limit") == 1 })
	require.Equal(t, 1, m.metric("idlecount_claims_total", "result", "cold", "pool", "none"))
	g.delete(cold)
	g.view.awaitPods(t, 7, factory.Idle)
	require.Equal(t, 1, m.metric("idlecount_pods_deleted_total"))
}

func TestANewLeaderDoesNotRepeatWhatTheLastOneDid(t *testing.T) {
	t.Parallel()
	g := newGround(t).needsKWOK()
	c := g.config("idle_count = 10", kwok)
	g.neverMoreThan(10)
	first := g.manage(c)
	g.view.awaitPods(t, 10, factory.Idle)
	// Its watch lags so far behind that what follows is invisible to it.
	second := g.manage(c, lagging(5*time.Second))
	second.log.await(t, "another manager leads")
	for i := range 6 {
		g.claim(c, fmt.Sprint(i))
	}
	g.view.await(t, "the first one refills", func() bool {
		return len(g.view.in(factory.Idle)) == 10 && len(g.view.in(factory.Claimed)) == 6
	})
	first.stop()
	await(t, "the second one has seen all", func() bool {
		return second.metric("idlecount_pods", "state", "idle") == 10 && second.metric("idlecount_pods", "state", "claimed") == 6
	})
	require.Zero(t, second.metric("idlecount_pods_created_total"))
	require.Zero(t, second.metric("idlecount_pods_deleted_total"))
}

func TestADeleteMissesAPodThatWasClaimedInBetween(t *testing.T) {
	t.Parallel()
	g := newGround(t).needsKWOK()
	c := g.config("idle_count = 2", kwok)
	m := g.manage(c)
	g.view.awaitPods(t, 2, factory.Idle)
	m.stop()

	// The pool is to be emptied. Each pod is claimed at the last moment: its delete is already on its way.
	var claims atomic.Int32
	// A policy that is never in force keeps it a pool; a scale_factor would want a pod for the first claim.
	never := "[[runners.kubernetes.idle_policy]]\n      periods = [\"0 0 29 2 *\"]\n      idle_count = 1"
	m = g.manage(g.config("idle_count = 0", `idle_time = "1s"`, kwok, never), through(&transport{before: func(req *http.Request) error {
		if req.Method == http.MethodDelete && strings.Contains(req.URL.Path, "/pods/") && claims.Load() < 2 {
			name := req.URL.Path[strings.LastIndex(req.URL.Path, "/")+1:]
			g.claimPod(name, fmt.Sprint(claims.Add(1)))
		}
		return nil
	}}))
	g.view.await(t, "both were claimed", func() bool { return len(g.view.in(factory.Claimed)) == 2 })
	await(t, "the manager has seen it", func() bool { return m.metric("idlecount_pods", "state", "claimed") == 2 })
	require.Equal(t, 2, m.metric("idlecount_api_writes_total", "operation", "delete pod", "result", "Conflict"))
	require.Zero(t, m.metric("idlecount_pods_deleted_total"))
	require.Zero(t, m.metric("idlecount_reconcile_errors_total"), "a conflict is no error")
	require.Len(t, g.view.in(factory.Claimed), 2)
}

// claimPod binds one pod to a job, as the claim's write does.
func (g *ground) claimPod(name, job string) {
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q,%q:%q},"ownerReferences":null}}`,
		factory.LabelState, factory.StateClaimed, factory.LabelJob, job)
	_, err := g.client.CoreV1().Pods(g.namespace).Patch(g.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		g.t.Errorf("claim pod %s: %v", name, err)
	}
}

func TestAnIdleManagerWritesNothing(t *testing.T) {
	t.Parallel()
	g := newGround(t).needsKWOK()
	c := g.config("idle_count = 3", kwok)
	m := g.manage(c)
	idle := g.view.awaitPods(t, 3, factory.Idle)
	m.stop()

	var mu sync.Mutex
	writes := map[string]int{}
	m = g.manage(c, through(&transport{before: func(req *http.Request) error {
		mu.Lock()
		defer mu.Unlock()
		if req.Method != http.MethodGet {
			writes[req.Method+" "+req.URL.Path]++
		}
		return nil
	}}))
	await(t, "the manager has looked at the pool", func() bool { return m.metric("idlecount_pods", "state", "idle") == 3 })
	// Changes that mean nothing: each makes the manager look at the pool.
	for i := range 20 {
		before := m.metric("idlecount_reconcile_seconds")
		for name := range idle {
			patch := fmt.Sprintf(`{"metadata":{"annotations":{"touched":"%d"}}}`, i)
			_, err := g.client.CoreV1().Pods(g.namespace).Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			require.NoError(t, err)
			break
		}
		await(t, "another pass", func() bool { return m.metric("idlecount_reconcile_seconds") > before })
	}
	mu.Lock()
	defer mu.Unlock()
	for write := range writes {
		lease := strings.HasPrefix(write, "PUT ") && strings.HasSuffix(write, "/leases/idlecount")
		question := strings.HasSuffix(write, "/selfsubjectaccessreviews")
		require.True(t, lease || question, "an idle manager wrote: %v", writes)
	}
	require.NotEmpty(t, writes, "the lease at least")
}

func TestAKubeconfigThatPointsNowhere(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	m := g.manage(g.config("idle_count = 1"), through(&transport{before: func(*http.Request) error { return errors.New("connection refused") }}))
	select {
	case err := <-m.done:
		m.done <- nil
		require.ErrorContains(t, err, "the Kubernetes API can't be reached")
		require.ErrorContains(t, err, "connection refused")
		require.ErrorContains(t, err, "kubeconfig")
	case <-time.After(patience):
		t.Fatal("Run goes on without an API server")
	}
}

func TestAManagerThatIsStoppedAtOnceStops(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	g.manage(g.config("idle_count = 1", nowhere)).stop()
}

func TestADeletedAnchorIsMadeAnew(t *testing.T) {
	t.Parallel()
	g := newGround(t).needsKWOK()
	c := g.config("idle_count = 2", kwok)
	g.manage(c)
	before := g.view.awaitPods(t, 2, factory.Idle)
	claimed := g.claim(c, "1")
	g.view.await(t, "the claimed pod is replaced", func() bool {
		return len(g.view.in(factory.Idle)) == 2 && len(g.view.in(factory.Claimed)) == 1
	})
	for name := range g.view.statuses() {
		require.NoError(t, g.client.CoreV1().ConfigMaps(g.namespace).Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	// The cluster's garbage collector takes the idle pods with it.
	g.view.await(t, "the pool is filled anew", func() bool {
		idle := g.view.in(factory.Idle)
		for name := range before {
			if idle[name] != nil {
				return false
			}
		}
		return len(idle) == 2 && len(g.view.statuses()) == 1
	})
	require.Contains(t, g.view.in(factory.Claimed), claimed.Name)
}

// TestALeaderThatIsCutOffIsReplaced cuts a leader off in the middle of filling a pool, as a broken network would, and lets
// it back in later.
func TestALeaderThatIsCutOffIsReplaced(t *testing.T) {
	t.Parallel()
	g := newGround(t).needsKWOK()
	c := g.config("idle_count = 40", kwok)
	g.neverMoreThan(40)
	quick := func(o *pool.Options, _ *rest.Config) {
		o.LeaseDuration, o.RenewDeadline, o.RetryPeriod = 3*time.Second, 2*time.Second, 200*time.Millisecond
	}
	var cut atomic.Bool
	var creates atomic.Int32
	first := g.manage(c, quick, through(&transport{before: func(req *http.Request) error {
		if req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, "/pods") && creates.Add(1) == 20 {
			cut.Store(true)
		}
		if cut.Load() {
			return errors.New("no route to host")
		}
		return nil
	}}))
	await(t, "the first one is cut off", cut.Load)
	second := g.manage(c, quick)
	g.view.awaitPods(t, 40, factory.Idle)
	require.Equal(t, 1, second.metric("idlecount_leader"))
	await(t, "the first one has noticed", func() bool { return first.metric("idlecount_leader") == 0 })
	require.Equal(t, 40, first.metric("idlecount_pods_created_total", "result", "ok")+second.metric("idlecount_pods_created_total", "result", "ok"))

	cut.Store(false)
	first.log.await(t, "another manager leads")
	g.claim(c, "1")
	g.view.await(t, "the pool is refilled", func() bool {
		return len(g.view.in(factory.Idle)) == 40 && len(g.view.in(factory.Claimed)) == 1
	})
	second.stop()
	await(t, "the first one leads again", func() bool { return first.metric("idlecount_pods", "state", "idle") == 40 })
	require.Zero(t, first.metric("idlecount_pods_deleted_total")+second.metric("idlecount_pods_deleted_total"))
}
