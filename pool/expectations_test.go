package pool

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	testingclock "k8s.io/utils/clock/testing"

	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/internal/watches"
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
		byPool: watches.ByLabel(factory.LabelPool), byRunner: watches.ByLabel(factory.LabelRunner),
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
	s := gather(n, e, k, "runner", p, true)
	require.Len(t, s.pods, 5, "a pod that is expected and shown counts once")
	states := map[string]plan.State{}
	for _, pod := range s.pods {
		states[pod.Name] = pod.State
	}
	require.Equal(t, map[string]plan.State{
		"shown": plan.Warming, "deleted": plan.Ending, "claimed": plan.Claimed, "made": plan.Warming, "unanswered": plan.Warming,
	}, states)
	require.Equal(t, map[string]tally{"other": {idle: 0, warming: 2, claimed: 1, ending: 1}}, s.others)
	require.Equal(t, at(10).Add(expectedFor), s.expires)

	uid, version, known := s.version("uid-made")
	require.True(t, known)
	require.Equal(t, types.UID("uid-made"), uid)
	require.Equal(t, "9", version)
	_, _, known = s.version("")
	require.False(t, known, "a pod whose create isn't answered can't be deleted conditionally")

	require.Empty(t, gather(n, e, k, "runner", p, false).others, "where nothing ties them together nobody looks at other pools")
}

func TestTheWindowGrowsWithSuccessAndClosesWithARefusal(t *testing.T) {
	// Calls end only when the test says so: it sees how many are under way.
	run := func(w *window, n int) (begun chan chan error, done chan string) {
		begun, done = make(chan chan error), make(chan string, 1)
		go func() {
			succeeded, err := w.run(n, func() error {
				end := make(chan error)
				begun <- end
				return <-end
			})
			done <- fmt.Sprintf("%d %v", succeeded, err)
		}()
		return begun, done
	}
	take := func(begun chan chan error, n int) (calls []chan error) {
		for range n {
			calls = append(calls, <-begun)
		}
		return calls
	}
	end := func(calls []chan error, err error) {
		for _, call := range calls {
			call <- err
		}
	}
	w := &window{}
	begun, done := run(w, 20)
	calls := take(begun, 1)
	for _, n := range []int{2, 4, 8} {
		end(calls, nil)
		calls = take(begun, n)
	}
	require.Equal(t, 8, w.size)
	end(calls, nil)
	end(take(begun, 5), nil)
	require.Equal(t, "20 <nil>", <-done)

	t.Run("the next run goes on with it", func(t *testing.T) {
		begun, done := run(w, 15)
		end(take(begun, 15), nil)
		require.Equal(t, "15 <nil>", <-done)
	})
	t.Run("it has an end", func(t *testing.T) {
		w := &window{size: parallel}
		begun, done := run(w, parallel+3)
		end(take(begun, parallel), nil)
		end(take(begun, 3), nil)
		require.Equal(t, fmt.Sprint(parallel+3)+" <nil>", <-done)
		require.Equal(t, parallel, w.size)
	})
	t.Run("after a refusal no call is begun, those under way are waited for, and it starts anew", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := &window{size: 4}
			begun, done := run(w, 100)
			calls := take(begun, 4)
			end(calls[:1], errors.New("quota"))
			synctest.Wait()
			end(calls[1:3], nil)
			end(calls[3:], errors.New("another"))
			require.Equal(t, "2 quota", <-done)
			require.Equal(t, 1, w.size)
		})
	})
	t.Run("nothing but refusals costs one call", func(t *testing.T) {
		w := &window{}
		begun, done := run(w, 100)
		end(take(begun, 1), errors.New("quota"))
		require.Equal(t, "0 quota", <-done)
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
