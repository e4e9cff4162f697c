package pool

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// finishWithin is how long a manager that is told to stop may take to finish its pass before the lease is let go.
const finishWithin = 10 * time.Second

// elect leads whenever it holds the lease, until ctx ends. lead gets a context that ends when the lease is lost; it has to
// stop when that or ctx ends. The lease is given back only once lead has returned, so that no two managers ever write at
// the same time.
func elect(ctx context.Context, o Options, lock resourcelock.Interface, watchdog *leaderelection.HealthzAdaptor, lead func(context.Context)) error {
	var leading sync.Mutex
	for ctx.Err() == nil {
		electing, stop := context.WithCancel(context.WithoutCancel(ctx))
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: lock, Name: o.lease(), WatchDog: watchdog, ReleaseOnCancel: true,
			LeaseDuration: o.LeaseDuration, RenewDeadline: o.RenewDeadline, RetryPeriod: o.RetryPeriod,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(held context.Context) {
					leading.Lock()
					defer leading.Unlock()
					if held.Err() == nil && ctx.Err() == nil {
						lead(held)
					}
				},
				OnStoppedLeading: func() {},
			},
		})
		if err != nil {
			stop()
			return fmt.Errorf("leader election: %w", err)
		}
		watchdog.SetLeaderElection(elector)
		finished := context.AfterFunc(ctx, func() {
			leading.Lock()
			defer leading.Unlock()
			stop()
		})
		elector.Run(electing)
		finished()
		stop()
		// A pass that lost its lease is cut short; wait for it before the next term.
		leading.Lock()
		leading.Unlock() //nolint:staticcheck // the lock is only waited for
	}
	return nil
}

// newLock is the lease, with what goes wrong with it said in the log: without it nothing else happens.
func newLock(o Options) *noisyLock {
	return &noisyLock{log: o.Log, name: o.lease(), lasts: o.LeaseDuration, Interface: &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: o.LeaseNamespace, Name: o.LeaseName},
		Client:     &notedLeases{LeaseInterface: o.Client.CoordinationV1().Leases(o.LeaseNamespace)},
		LockConfig: resourcelock.ResourceLockConfig{Identity: o.Identity},
	}}
}

// noisyLock is a lock that logs each new error once, and knows how long it was last written for.
type noisyLock struct {
	resourcelock.Interface
	log   *slog.Logger
	name  string
	lasts time.Duration

	mu     sync.Mutex
	holder string
	last   string
	until  time.Time // so long nobody else takes the lease; zero = it isn't this manager's
}

// holds says whether nobody else can have taken the lease yet. Leader election finds that out a moment after a process that
// stood still goes on, and then ends what the leader does; this is for what must not be done in that moment.
func (l *noisyLock) holds() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Now().Before(l.until)
}

// wrote notes the outcome of a write that was begun at some time.
func (l *noisyLock) wrote(began time.Time, record resourcelock.LeaderElectionRecord, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err != nil: // what was written before goes on to hold
	case record.HolderIdentity == l.Identity():
		l.until = began.Add(l.lasts) // the others count from when they see it, which is later
	default:
		l.until = time.Time{} // given back
	}
}

func (l *noisyLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err == nil {
		l.saw(record.HolderIdentity)
	}
	if apierrors.IsNotFound(err) {
		return record, raw, err // the first manager creates it
	}
	return record, raw, l.heard(ctx, err)
}

func (l *noisyLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	began := time.Now()
	err := l.Interface.Create(ctx, record)
	l.wrote(began, record, err)
	return l.heard(ctx, err)
}

func (l *noisyLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity == "" && !l.mine() {
		// client-go gives a lease back in whatever version it finds it, also where another manager has taken it since this one
		// stood still, and would have two of them lead.
		return errors.New("the lease isn't given back: another manager has it")
	}
	began := time.Now()
	err := l.Interface.Update(ctx, record)
	l.wrote(began, record, err)
	if apierrors.IsConflict(err) {
		return err // another manager was faster
	}
	return l.heard(ctx, err)
}

func (l *noisyLock) heard(ctx context.Context, err error) error {
	if ctx.Err() != nil && err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != l.last && err != nil {
		l.log.Error("the lease can't be read or written, so nobody leads through this manager", "lease", l.name, "error", err)
	}
	l.last = text
	return err
}

// mine says whether the lease named this manager when it was read last.
func (l *noisyLock) mine() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.holder == l.Identity()
}

// saw logs who leads, where that has changed.
func (l *noisyLock) saw(holder string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if holder != l.holder && holder != "" && holder != l.Identity() {
		l.log.Info("another manager leads; standing by", "lease", l.name, "leader", holder)
	}
	l.holder = holder
}

// trouble is why the lease can't be had, "" where it can.
func (l *noisyLock) trouble() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}
