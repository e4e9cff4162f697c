package pool_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/rest"

	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/pool"
)

// reloads is a configuration file that a test changes.
type reloads struct {
	t  *testing.T
	to chan pool.Reload
}

func newReloads(t *testing.T) *reloads { return &reloads{t: t, to: make(chan pool.Reload)} }

func (r *reloads) option(o *pool.Options, _ *rest.Config) { o.Reloads = r.to }

func (r *reloads) load(c *config.Config) { r.send(pool.Reload{Config: c}) }

func (r *reloads) fail(message string) { r.send(pool.Reload{Err: errors.New(message)}) }

func (r *reloads) send(reload pool.Reload) {
	r.t.Helper()
	select {
	case r.to <- reload:
	case <-time.After(patience):
		r.t.Fatal("the manager takes no other configuration")
	}
}

// also is another runner beside the ground's, in the same namespace and with a watch of its own pods only through view.
func (g *ground) also() *ground {
	other := *g
	other.token = "o" + rand.String(8)
	return &other
}

// both is one configuration of two.
func both(a, b *config.Config) *config.Config {
	c := *a
	c.Runners = append(append([]config.Runner{}, a.Runners...), b.Runners...)
	return &c
}

// of are the pods of a runner.
func (g *ground) of(pods map[string]*corev1.Pod) map[string]*corev1.Pod {
	found := map[string]*corev1.Pod{}
	for name, pod := range pods {
		if pod.Labels[factory.LabelRunner] == g.token[:9] {
			found[name] = pod
		}
	}
	return found
}

func TestAnotherConfigurationTouchesOnlyThePoolsThatDiffer(t *testing.T) {
	t.Parallel()
	g := newGround(t).needsKWOK()
	other := g.also()
	file := newReloads(t)
	m := g.manage(both(g.config("idle_count = 2", kwok), other.config("idle_count = 2", kwok)), file.option)
	g.view.awaitPods(t, 4, factory.Idle)
	ours, theirs := uids(g.of(g.view.in(factory.Idle))), uids(other.of(g.view.in(factory.Idle)))
	require.Len(t, ours, 2)
	require.Len(t, theirs, 2)
	lease := g.lease()

	file.load(both(g.config("idle_count = 4", kwok), other.config("idle_count = 2", kwok)))
	g.view.awaitPods(t, 6, factory.Idle)
	require.Len(t, g.of(g.view.in(factory.Idle)), 4)
	require.Equal(t, theirs, uids(other.of(g.view.in(factory.Idle))))
	for uid := range ours {
		require.Contains(t, uids(g.of(g.view.in(factory.Idle))), uid)
	}
	require.Equal(t, 6, m.metric("idlecount_pods_created_total"))
	require.Zero(t, m.metric("idlecount_pods_deleted_total"))
	require.Equal(t, lease, g.lease(), "the lease wasn't given up")

	// The same once more writes nothing.
	await(t, "the manager is done", func() bool { return m.metric("idlecount_pods", "state", "idle") == 6 })
	writes, passes := m.metric("idlecount_api_writes_total"), m.metric("idlecount_reconcile_seconds")
	file.load(both(g.config("idle_count = 4", kwok), other.config("idle_count = 2", kwok)))
	await(t, "all has been looked at", func() bool { return m.metric("idlecount_reconcile_seconds") >= passes+3 })
	require.Equal(t, writes, m.metric("idlecount_api_writes_total"))
}

// lease is who holds the lease, and how often it has changed hands.
func (g *ground) lease() string {
	lease, err := g.client.CoordinationV1().Leases(g.namespace).Get(g.t.Context(), "idlecount", metav1.GetOptions{})
	require.NoError(g.t, err)
	return *lease.Spec.HolderIdentity + " " + lease.Spec.AcquireTime.String()
}

func TestABrokenFileLeavesTheOldConfigurationInForce(t *testing.T) {
	t.Parallel()
	g := newGround(t).needsKWOK()
	file := newReloads(t)
	c := g.config("idle_count = 2", kwok)
	m := g.manage(c, file.option)
	g.view.awaitPods(t, 2, factory.Idle)
	require.Equal(t, 1, m.metric("idlecount_config_last_reload_successful"))
	require.Positive(t, m.metric("idlecount_config_last_reload_success_timestamp_seconds"))

	const words = `config.toml: runners[0].kubernetes.idle_cuont: is unknown; did you mean idle_count?`
	for range 3 {
		file.fail(words)
	}
	saysSo := func(text string) func() bool {
		return func() bool {
			for _, s := range g.view.statuses() {
				if s.ConfigError != text {
					return false
				}
			}
			return true
		}
	}
	g.view.await(t, "the status says so", saysSo(words))
	require.Zero(t, m.metric("idlecount_config_last_reload_successful"))
	g.awaitEvent("ConfigBroken", words)
	require.Equal(t, 1, strings.Count(m.log.String(), "can't be used"), "it is said once")
	g.claim(c, "1")
	g.view.await(t, "the pool is refilled all the same", func() bool {
		return len(g.view.in(factory.Idle)) == 2 && len(g.view.in(factory.Claimed)) == 1
	})
	// A file that loads and makes no pod is as broken as one that doesn't load.
	other := g.config("idle_count = 3", kwok)
	other.Runners[0].Kubernetes.CPURequest = "much"
	file.load(other)
	g.view.await(t, "the status says what is wrong now", func() bool {
		for _, s := range g.view.statuses() {
			return strings.Contains(s.ConfigError, "cpu_request")
		}
		return false
	})

	file.load(g.config("idle_count = 3", kwok))
	g.view.await(t, "the mended file is in force", func() bool { return len(g.view.in(factory.Idle)) == 3 })
	g.view.await(t, "the status is clean", saysSo(""))
	g.awaitEvent("ConfigMended", "can be used again")
	require.Equal(t, 1, m.metric("idlecount_config_last_reload_successful"))
}

func TestAConfigurationMayMoveToAnotherNamespace(t *testing.T) {
	t.Parallel()
	g := newGround(t).needsKWOK()
	there := newGround(t)
	file := newReloads(t)
	here := g.also()
	m := g.manage(both(g.config("idle_count = 1", kwok), here.config("idle_count = 2", kwok)), file.option)
	g.view.awaitPods(t, 3, factory.Idle)

	moved := *here
	moved.namespace = there.namespace
	file.load(both(g.config("idle_count = 1", kwok), moved.config("idle_count = 2", kwok)))
	there.view.awaitPods(t, 2, factory.Idle)
	g.view.awaitPods(t, 1, factory.Idle)
	g.view.await(t, "the anchor here is gone", func() bool { return len(g.view.statuses()) == 1 })
	require.Equal(t, there.namespace, m.leaseNote(g, there.namespace))

	file.load(g.config("idle_count = 1", kwok))
	there.view.await(t, "nothing is left there", func() bool { return len(there.view.all()) == 0 && len(there.view.statuses()) == 0 })
	await(t, "the namespace is forgotten", func() bool { return m.leaseNote(g, there.namespace) == "" })
	file.load(both(g.config("idle_count = 1", kwok), moved.config("idle_count = 1", kwok)))
	there.view.awaitPods(t, 1, factory.Idle)
	g.view.awaitPods(t, 1, factory.Idle)
}

// TestTheNotesInTheLeaseOutliveIt: the elector makes a lease again that somebody has deleted, in the same term, and what has moved
// away since is found all the same by whoever leads next.
func TestTheNotesInTheLeaseOutliveIt(t *testing.T) {
	t.Parallel()
	g, there := newGround(t).needsKWOK(), newGround(t)
	other := there.also()
	m := g.manage(both(g.config("idle_count = 1", kwok), other.config("idle_count = 1", kwok)))
	there.view.awaitPods(t, 1, factory.Idle)
	leases := g.client.CoordinationV1().Leases(g.namespace)
	before, err := leases.Get(t.Context(), "idlecount", metav1.GetOptions{})
	require.NoError(t, err)
	renewed := func() bool {
		now, err := leases.Get(t.Context(), before.Name, metav1.GetOptions{})
		return err == nil && now.Spec.RenewTime.After(before.Spec.RenewTime.Time)
	}
	for range 2 { // what was made again is known, too
		await(t, "the note has been there at a renewal", func() bool { return m.leaseNote(g, there.namespace) != "" })
		before, err = leases.Get(t.Context(), before.Name, metav1.GetOptions{})
		require.NoError(t, err)
		await(t, "which has been", renewed)
		require.NoError(t, leases.Delete(t.Context(), before.Name, metav1.DeleteOptions{}))
		await(t, "the lease is there again", func() bool {
			now, err := leases.Get(t.Context(), before.Name, metav1.GetOptions{})
			if err != nil || now.UID == before.UID {
				return false
			}
			before = now
			return true
		})
		await(t, "and the note", func() bool { return m.leaseNote(g, there.namespace) == there.namespace })
	}
	m.stop()
	g.manage(g.config("idle_count = 1", kwok))
	there.view.await(t, "nothing is left there", func() bool { return len(there.view.all()) == 0 && len(there.view.statuses()) == 0 })
}

func TestAManagerThatStandsByFollowsTheFileToo(t *testing.T) {
	t.Parallel()
	g := newGround(t).needsKWOK()
	there := newGround(t)
	first := g.manage(g.config("idle_count = 2", kwok))
	g.view.awaitPods(t, 2, factory.Idle)
	file := newReloads(t)
	second := g.manage(g.config("idle_count = 2", kwok), file.option)
	second.log.await(t, "another manager leads")
	other := there.also()
	file.load(both(g.config("idle_count = 3", kwok), other.config("idle_count = 1", kwok)))
	second.log.await(t, "another configuration is in force")
	require.Len(t, g.view.all(), 2, "it doesn't lead")
	first.stop()
	g.view.awaitPods(t, 3, factory.Idle)
	there.view.awaitPods(t, 1, factory.Idle)
}
