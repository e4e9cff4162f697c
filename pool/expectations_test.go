package pool

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	testingclock "k8s.io/utils/clock/testing"

	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/pool/plan"
)

func named(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "ci", Name: name}
}

func TestExpectations(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC))
	begin := clock.Now()
	e := newExpectations(clock)
	pool := key{"ci", "pool"}
	names := func() []string {
		creates, _ := e.of("ci", "runner")
		var found []string
		for name := range creates {
			found = append(found, name)
		}
		return found
	}
	e.create(pool, "runner", "a")
	e.create(pool, "runner", "b")
	e.create(key{"ci", "other"}, "runner", "c")
	e.create(pool, "another runner", "d")
	e.create(key{"elsewhere", "pool"}, "runner", "e")
	require.ElementsMatch(t, []string{"a", "b", "c"}, names())

	e.dropCreate(named("a"))
	e.created(named("a"), "uid-a", "1")
	require.ElementsMatch(t, []string{"b", "c"}, names(), "the watch was faster than the answer")
	e.created(named("b"), "uid-b", "7")
	creates, expires := e.of("ci", "runner")
	require.Equal(t, types.UID("uid-b"), creates["b"].uid)
	require.Equal(t, begin.Add(expectedFor), expires)

	e.doubted(named("c"))
	_, expires = e.of("ci", "runner")
	require.Equal(t, begin.Add(doubtedFor), expires, "what nobody knows of is waited for less long")
	clock.SetTime(begin.Add(doubtedFor))
	require.ElementsMatch(t, []string{"b"}, names())

	e.delete("uid-x")
	e.delete("uid-y")
	e.dropDelete("uid-y")
	require.True(t, e.deleting("uid-x"))
	require.False(t, e.deleting("uid-y"))
	clock.SetTime(begin.Add(doubtedFor).Add(expectedFor))
	require.Empty(t, names())
	require.False(t, e.deleting("uid-x"), "an expectation whose sign was lost ends")
}

// cached is a namespace's cache that holds pods; a test decides when it sees what.
func cached(t *testing.T, pods ...*corev1.Pod) *namespaceCache {
	t.Helper()
	informer := cache.NewSharedIndexInformer(&cache.ListWatch{}, &corev1.Pod{}, 0, cache.Indexers{
		byPool: labelIndex(factory.LabelPool), byRunner: labelIndex(factory.LabelRunner),
	})
	for _, pod := range pods {
		require.NoError(t, informer.GetIndexer().Add(pod))
	}
	return &namespaceCache{pods: informer, anchors: informer}
}

func seen(name, pool, state string, changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ci", Name: name, UID: types.UID("uid-" + name), ResourceVersion: "5", CreationTimestamp: at(0),
		Labels: map[string]string{factory.LabelPool: pool, factory.LabelRunner: "runner", factory.LabelState: state},
	}}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

func TestGatherSeesWritesThatTheWatchHasNotShown(t *testing.T) {
	e := newExpectations(testingclock.NewFakePassiveClock(at(10).Time))
	k := key{"ci", "pool"}
	p := &pool{key: k, runner: config.Runner{Limit: 10}, templates: map[time.Duration]string{0: "t"}}
	e.create(k, "runner", "made")
	e.created(named("made"), "uid-made", "9")
	e.create(k, "runner", "unanswered")
	e.create(k, "runner", "shown")
	e.create(key{"ci", "other"}, "runner", "made-other")
	e.delete("uid-deleted")
	n := cached(t,
		seen("shown", "pool", factory.StateIdle), seen("deleted", "pool", factory.StateIdle), seen("claimed", "pool", factory.StateClaimed),
		seen("x", "other", factory.StateIdle), seen("y", "other", factory.StateClaimed),
		seen("z", "other", factory.StateIdle, func(p *corev1.Pod) { p.DeletionTimestamp = new(at(1)) }),
	)
	s := gather(n, e, k, "runner", p)
	states := map[string]plan.State{}
	for _, pod := range s.have.Pods {
		states[pod.Name] = pod.State
	}
	require.Equal(t, map[string]plan.State{
		"shown": plan.Warming, "deleted": plan.Ending, "claimed": plan.Claimed, "made": plan.Warming, "unanswered": plan.Warming,
	}, states)
	require.Equal(t, plan.Others{Live: 3, Ending: 1}, s.have.Others)
	require.Equal(t, at(10).Add(expectedFor), s.expires)

	uid, version, known := s.version("uid-made")
	require.True(t, known)
	require.Equal(t, types.UID("uid-made"), uid)
	require.Equal(t, "9", version)
	_, _, known = s.version("")
	require.False(t, known, "a pod whose create isn't answered can't be deleted conditionally")

	p.runner.Limit = 0
	require.Equal(t, plan.Others{}, gather(n, e, k, "runner", p).have.Others, "without a limit nobody looks at other pools")
}

func TestSlowStart(t *testing.T) {
	for n, rounds := range map[int][]int{1: {1}, 2: {1, 1}, 7: {1, 2, 4}, 10: {1, 2, 4, 3}, 100: {1, 2, 4, 8, 16, 16, 16, 16, 16, 5}} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			var calls, under, most atomic.Int32
			done, err := slowStart(n, 16, func() error {
				most.Store(max(most.Load(), under.Add(1)))
				calls.Add(1)
				under.Add(-1)
				return nil
			})
			require.NoError(t, err)
			require.Equal(t, n, done)
			require.EqualValues(t, n, calls.Load())
			require.LessOrEqual(t, int(most.Load()), 16)
			sum := 0
			for _, round := range rounds {
				sum += round
			}
			require.Equal(t, n, sum)
		})
	}
	t.Run("a refusal ends it after its round", func(t *testing.T) {
		var calls atomic.Int32
		done, err := slowStart(100, 16, func() error {
			if calls.Add(1) > 5 {
				return errors.New("quota")
			}
			return nil
		})
		require.ErrorContains(t, err, "quota")
		require.Equal(t, 5, done)
		require.EqualValues(t, 7, calls.Load(), "rounds of 1, 2 and 4")
	})
	t.Run("nothing but refusals costs one call", func(t *testing.T) {
		var calls atomic.Int32
		_, err := slowStart(100, 16, func() error { calls.Add(1); return errors.New("quota") })
		require.Error(t, err)
		require.EqualValues(t, 1, calls.Load())
	})
}

func TestAHorizonIsReachedWhenTheCacheShowsAllOfIt(t *testing.T) {
	version := func(v string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.ResourceVersion = v } }
	pod := func(name, v string) *corev1.Pod { return seen(name, "pool", factory.StateIdle, version(v)) }
	cases := map[string]struct {
		cache   []*corev1.Pod
		reached bool
	}{
		"all of it":                        {[]*corev1.Pod{pod("a", "98"), pod("b", "100")}, true},
		"newer":                            {[]*corev1.Pod{pod("a", "104"), pod("b", "100"), pod("c", "103")}, true},
		"an object is missing":             {[]*corev1.Pod{pod("a", "98")}, false},
		"an object is older":               {[]*corev1.Pod{pod("a", "98"), pod("b", "99")}, false},
		"an object is gone, not yet here":  {[]*corev1.Pod{pod("a", "98"), pod("b", "100"), pod("c", "50")}, false},
		"nothing":                          {nil, false},
		"versions are numbers, not words":  {[]*corev1.Pod{pod("a", "1000"), pod("b", "1000")}, true},
		"versions are numbers, not words.": {[]*corev1.Pod{pod("a", "9"), pod("b", "100")}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			h := &horizon{version: "102", versions: map[string]string{"a": "98", "b": "100"}}
			require.Equal(t, c.reached, h.shownBy(cached(t, c.cache...).pods.GetStore()))
		})
	}
}
