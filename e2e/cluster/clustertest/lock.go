package clustertest

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"idlecount.dev/idlecount/e2e/cluster"
)

// lockName is the machine-wide lock between test processes: shared by those that use the cluster, held alone by one
// that breaks it.
const lockName = "tests"

// gateName is the lock that everybody takes on the way to the other one. Who waits for it alone holds the gate
// meanwhile, so that tests which keep coming don't keep it waiting.
const gateName = "tests-gate"

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
	release, err := pass(ctx, t, exclusive)
	if errors.Is(err, os.ErrPermission) {
		missing(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
}

func pass(ctx context.Context, t testing.TB, exclusive bool) (release func(), err error) {
	// Who waits for the gate's holder while that waits for this process would wait for ever.
	held := cluster.HoldsLock(lockName)
	if held && exclusive {
		return nil, errSelf
	}
	waiting := func() { t.Logf("waiting for other tests to let go of the cluster") }
	if !held {
		open, err := cluster.Lock(ctx, gateName, exclusive, waiting)
		if err != nil {
			return nil, err
		}
		defer open()
	}
	return cluster.Lock(ctx, lockName, exclusive, waiting)
}
