package pool

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"

	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/e2e/cluster/clustertest"
	"idlecount.dev/idlecount/factory"
)

// shelf is a lease whose writes go as the test has them.
type shelf struct {
	resourcelock.Interface
	holder string
	err    error
}

func (s *shelf) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	return &resourcelock.LeaderElectionRecord{HolderIdentity: s.holder}, nil, nil
}

func (s *shelf) Identity() string { return "me" }
func (s *shelf) Create(context.Context, resourcelock.LeaderElectionRecord) error {
	return s.err
}
func (s *shelf) Update(context.Context, resourcelock.LeaderElectionRecord) error {
	return s.err
}

func TestHowLongALeaseIsHeldByItsOwnWrites(t *testing.T) {
	mine, free := resourcelock.LeaderElectionRecord{HolderIdentity: "me"}, resourcelock.LeaderElectionRecord{}
	inner := &shelf{holder: "me"}
	lock := &noisyLock{Interface: inner, log: slog.New(slog.DiscardHandler), lasts: time.Hour}
	require.False(t, lock.holds(), "never written")
	require.NoError(t, lock.Create(t.Context(), mine))
	require.True(t, lock.holds())
	inner.err = errors.New("away")
	require.Error(t, lock.Update(t.Context(), mine))
	require.True(t, lock.holds(), "what was written before goes on to hold")
	inner.err = nil
	_, _, err := lock.Get(t.Context())
	require.NoError(t, err)
	require.NoError(t, lock.Update(t.Context(), free))
	require.False(t, lock.holds(), "given back")

	lock.lasts = time.Nanosecond
	require.NoError(t, lock.Update(t.Context(), mine))
	require.False(t, lock.holds(), "it lasts from before the write, and not longer than it says")
}

// Whoever stood still gives back what it has no more: another manager's lease, which would make two of them lead.
func TestNobodyGivesBackTheLeaseOfAnother(t *testing.T) {
	inner := &shelf{holder: "other"}
	lock := &noisyLock{Interface: inner, log: slog.New(slog.DiscardHandler), lasts: time.Hour}
	require.NoError(t, lock.Create(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "me"}))
	_, _, err := lock.Get(t.Context()) // as client-go does before
	require.NoError(t, err)
	require.ErrorContains(t, lock.Update(t.Context(), resourcelock.LeaderElectionRecord{}), "another manager has it")
}

// Once the lease has run out no more pods are made, in the middle of a pass too.
func TestNoPodIsMadeWithALeaseThatHasRunOut(t *testing.T) {
	t.Parallel()
	client, err := kubernetes.NewForConfig(clustertest.RestConfig(t))
	require.NoError(t, err)
	namespace := clustertest.Namespace(t)
	counters, err := newMetrics(prometheus.NewRegistry(), clock.RealClock{})
	require.NoError(t, err)
	r := runner("a", "glrt-aaaaaaaaa", func(k *config.Kubernetes) { k.Namespace, k.SchedulerName = namespace, "nobody" })
	pools, err := poolsOf(&config.Config{Runners: []config.Runner{r}}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	require.Len(t, pools, 1)
	var left atomic.Int32
	left.Store(3)
	w := &writer{
		client: client, expect: newExpectations(clock.RealClock{}), metrics: counters, log: slog.New(slog.DiscardHandler),
		holds: func() bool { return left.Add(-1) >= 0 },
	}
	for k, one := range pools {
		anchor, err := client.CoreV1().ConfigMaps(namespace).Create(t.Context(), factory.Anchor(r, one.shape), metav1.CreateOptions{})
		require.NoError(t, err)
		created, err := w.createPods(t.Context(), &pass{key: k, pool: one, anchor: anchor}, 10, &window{})
		require.ErrorIs(t, err, errLapsed)
		require.Equal(t, 3, created)
	}
	pods, err := client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: factory.LabelPool})
	require.NoError(t, err)
	require.Len(t, pods.Items, 3)
}
