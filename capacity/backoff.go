package capacity

import (
	"context"
	"time"

	"idlecount.dev/idlecount/factory"
)

// backoff is how long something that failed is left alone: each change that a watch shows makes a pass, and not another try.
// The zero value is that of what hasn't failed.
type backoff struct {
	of    string // what was tried; something else is tried at once
	err   error
	pause time.Duration
	until time.Time
}

// waits returns how the last try ended while it is too early for another one.
func (b backoff) waits(now time.Time, of string) error {
	if b.err == nil || b.of != of || !now.Before(b.until) {
		return nil
	}
	return b.err
}

// after is b when one more try has ended so.
func (b backoff) after(now time.Time, of string, err error) backoff {
	if err == nil {
		return backoff{}
	}
	pause := firstRetry
	if b.err != nil && b.of == of {
		pause = min(2*b.pause, maxRetry)
	}
	return backoff{of: of, err: err, pause: pause, until: now.Add(pause)}
}

// attempt does something about a capacity, unless it failed a moment ago, and says when to look again.
func (t *term) attempt(ctx context.Context, m *memory, of string, do func() (time.Time, error)) (time.Time, error) {
	if m.backoff.waits(time.Now(), of) == nil {
		next, err := do()
		if err == nil || ctx.Err() != nil {
			m.backoff = backoff{}
			return next, err
		}
		m.backoff = m.backoff.after(time.Now(), of, err)
	}
	return t.clock.Now().Add(time.Until(m.backoff.until)), m.backoff.err
}

// tryAgain ends all pauses: the configuration was read anew, perhaps by somebody who has mended what was wrong.
func (t *term) tryAgain() {
	t.home.failed = backoff{}
	for _, m := range t.memory {
		m.backoff = backoff{}
	}
}

// asked is what of a capacity makes another try worth while at once where it has changed.
func (p *part) asked() string {
	asked := p.hash
	if p.anchor != nil {
		asked += " " + p.anchor.Annotations[factory.AnnotationDrained] + " " + p.anchor.Annotations[factory.AnnotationPaused]
	}
	return asked
}
