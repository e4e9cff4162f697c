package pool

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

const (
	// expectedFor bounds how long the watch is waited for. It is only reached where an event was lost.
	expectedFor = 5 * time.Minute
	// doubtedFor is the same for a create whose outcome isn't known: a request that was cut off is over by then.
	doubtedFor = 15 * time.Second
)

// expectations are the writes of this manager that its watch hasn't shown yet. A pass sees the cluster as the watch shows
// it plus what is expected, so a lagging watch can't make it create or delete twice, nor does it have to wait for it.
//
// A create is expected by the pod's name, a delete by its UID, from before the request is sent until the watch shows its
// effect, or the request fails.
type expectations struct {
	clock clock.PassiveClock

	mu      sync.Mutex
	creates map[types.NamespacedName]expectedCreate
	deletes map[types.UID]time.Time // when to give up on it
}

// expectedCreate is a pod that was created and not seen.
type expectedCreate struct {
	pool    key
	runner  string // value of its label
	created time.Time
	expires time.Time
	// As the API server answered; empty until it has.
	uid             types.UID
	resourceVersion string
}

func newExpectations(c clock.PassiveClock) *expectations {
	return &expectations{clock: c, creates: map[types.NamespacedName]expectedCreate{}, deletes: map[types.UID]time.Time{}}
}

// create expects a pod that is about to be created.
func (e *expectations) create(pool key, runner, name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.clock.Now()
	e.creates[types.NamespacedName{Namespace: pool.namespace, Name: name}] = expectedCreate{
		pool: pool, runner: runner, created: now, expires: now.Add(expectedFor),
	}
}

// created notes the API server's answer to a create; the watch may have been faster.
func (e *expectations) created(pod types.NamespacedName, uid types.UID, resourceVersion string) {
	e.change(pod, func(c *expectedCreate) { c.uid, c.resourceVersion = uid, resourceVersion })
}

// doubted notes that nobody knows whether a create has succeeded.
func (e *expectations) doubted(pod types.NamespacedName) {
	e.change(pod, func(c *expectedCreate) { c.expires = e.clock.Now().Add(doubtedFor) })
}

func (e *expectations) change(pod types.NamespacedName, change func(*expectedCreate)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c, ok := e.creates[pod]; ok {
		change(&c)
		e.creates[pod] = c
	}
}

// dropCreate forgets a create that failed, or that the watch has shown.
func (e *expectations) dropCreate(pod types.NamespacedName) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.creates, pod)
}

// delete expects a pod to end, whose delete is about to be sent.
func (e *expectations) delete(uid types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.deletes[uid] = e.clock.Now().Add(expectedFor)
}

// dropDelete forgets a delete that failed, or that the watch has shown.
func (e *expectations) dropDelete(uid types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.deletes, uid)
}

// deleting says whether the pod's delete was sent and hasn't been seen.
func (e *expectations) deleting(uid types.UID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	expires, ok := e.deletes[uid]
	if ok && !e.clock.Now().Before(expires) {
		delete(e.deletes, uid)
		return false
	}
	return ok
}

// of returns the expected creates of a runner's pods by name, and when the first expectation ends for lack of a sign; zero =
// never.
func (e *expectations) of(namespace, runner string) (creates map[string]expectedCreate, expires time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.clock.Now()
	creates = map[string]expectedCreate{}
	for pod, c := range e.creates {
		if !now.Before(c.expires) {
			delete(e.creates, pod)
			continue
		}
		if pod.Namespace != namespace || c.runner != runner {
			continue
		}
		creates[pod.Name] = c
		if expires.IsZero() || c.expires.Before(expires) {
			expires = c.expires
		}
	}
	return creates, expires
}
