package clustertest

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"idlecount.dev/idlecount/e2e/cluster"
)

// passage is a pair of machine-wide locks between test processes.
type passage struct {
	// lock is shared by those that use the cluster and held alone by one that breaks it.
	lock string
	// gate is what everybody takes on the way to the lock. Who waits for the lock alone holds the gate meanwhile, so
	// that tests which keep coming don't keep it waiting.
	gate string
}

var (
	errHeld = errors.New("other tests held the cluster for as long as this one may run")
	errSelf = errors.New("this process holds the cluster already: call Local before RestConfig, and RestConfig after t.Parallel")
)

// deadliner is what *testing.T has and testing.TB has not.
type deadliner interface{ Deadline() (time.Time, bool) }

// lock takes the lock until the end of the test.
func lock(t testing.TB, exclusive bool) {
	t.Helper()
	if os.Getenv(exclusiveVariable) != "" {
		return
	}
	ctx := t.Context()
	if d, ok := t.(deadliner); ok {
		if deadline, ok := d.Deadline(); ok {
			var cancel context.CancelFunc
			// Early enough that the message is seen instead of a dump of all goroutines.
			ctx, cancel = context.WithDeadlineCause(ctx, deadline.Add(-5*time.Second), errHeld)
			defer cancel()
		}
	}
	p := passage{lock: "tests", gate: "tests-gate"}
	release, err := p.pass(ctx, exclusive, func() { t.Logf("waiting for other tests to let go of the cluster") })
	if errors.Is(err, os.ErrPermission) {
		missing(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
}

func (p passage) pass(ctx context.Context, exclusive bool, waiting func()) (release func(), err error) {
	// Who waits for the gate's holder while that waits for this process would wait for ever.
	held := cluster.HoldsLock(p.lock)
	if held && exclusive {
		return nil, errSelf
	}
	if !held {
		open, err := cluster.Lock(ctx, p.gate, exclusive, waiting)
		if err != nil {
			return nil, err
		}
		defer open()
	}
	return cluster.Lock(ctx, p.lock, exclusive, waiting)
}
