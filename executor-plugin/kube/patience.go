package kube

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"idlecount.dev/idlecount/pool/claim"
)

// Patience is how an API server that doesn't answer is waited for.
type Patience struct {
	Most time.Duration // how long a call may be tried again
	// Doubt is how long a refusal (401, 403) is doubted: an API server that has just started refuses everything until it
	// has read the roles. After a failure to reach it a refusal is doubted anyway.
	Doubt  time.Duration
	Notice func(line string)

	outage *outage // of all calls of a client
}

// outage is told once, however many calls meet it. The nil one is that of a single call.
type outage struct {
	mu    sync.Mutex
	calls int // that wait for its end
}

// begin is called by a call that meets the outage; first is true where nobody has told of it.
func (o *outage) begin() (first bool) {
	if o == nil {
		return true
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.calls++
	return o.calls == 1
}

// end is called by a call that has begun, when it is over; last is true where no other one waits.
func (o *outage) end() (last bool) {
	if o == nil {
		return true
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.calls--
	return o.calls == 0
}

const (
	// attemptTimeout bounds one attempt of a call, so that one that hangs doesn't use up all patience.
	attemptTimeout = 15 * time.Second
	// noticeAfter is how long an outage is not worth a line.
	noticeAfter = 2 * time.Second
	// startDoubt is how long a refusal is doubted after the API server was away.
	startDoubt = 15 * time.Second
	maxBackoff = 3 * time.Second
)

// once makes one attempt.
func once(ctx context.Context, call func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	return call(ctx)
}

// try makes a call until it succeeds, fails for good, or patience ends.
func (p Patience) try(ctx context.Context, call func(ctx context.Context) error) error {
	e := effort{Patience: p, begin: time.Now(), doubt: p.Doubt}
	for n := 0; ; n++ {
		err := once(ctx, call)
		out := time.Since(e.begin).Round(time.Second)
		if ctx.Err() != nil || !e.again(err) {
			if e.noticed && p.outage.end() && err == nil {
				p.Notice(fmt.Sprintf("the API server answers again after %s", out))
			}
			return err
		}
		if out >= p.Most {
			if e.noticed {
				p.outage.end()
			}
			return fmt.Errorf("the API server didn't answer for %s: %w", out, err)
		}
		e.tell(err)
		select {
		case <-time.After(backoff(n)):
		case <-ctx.Done():
			if e.noticed {
				p.outage.end()
			}
			return err
		}
	}
}

// effort is one call and its tries so far.
type effort struct {
	Patience
	begin   time.Time
	refused time.Time // since when all answers were refusals
	doubt   time.Duration
	away    bool // the API server could not be reached
	noticed bool // and that was told
}

// again says whether a call that ended so is worth another try.
func (e *effort) again(err error) bool {
	if claim.Transient(err) {
		e.away, e.doubt, e.refused = true, startDoubt, time.Time{}
		return true
	}
	if !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) {
		return false
	}
	if e.refused.IsZero() {
		e.refused = time.Now()
	}
	return time.Since(e.refused) < e.doubt
}

// tell says once that the API server is away.
func (e *effort) tell(err error) {
	if e.away && !e.noticed && time.Since(e.begin) > noticeAfter {
		e.noticed = true
		if !e.outage.begin() {
			return
		}
		e.Notice(fmt.Sprintf("the API server doesn't answer, trying again for up to %s: %v", e.Most, err))
	}
}

// backoff grows from a tenth of a second, with jitter so that the jobs of a runner don't come back in step.
func backoff(n int) time.Duration {
	d := min(100*time.Millisecond<<min(n, 10), maxBackoff)
	return d/2 + rand.N(d/2+1) //nolint:gosec // spreads load, guards nothing
}
