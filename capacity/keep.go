package capacity

import (
	"context"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"idlecount.dev/idlecount/capacity/plan"
	"idlecount.dev/idlecount/capacity/status"
	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/factory"
)

// keep makes one capacity what it should be, where that is this manager's part, and says when to look again.
func (t *term) keep(ctx context.Context, p *part) (time.Time, error) {
	return t.attempt(ctx, p.memory, p.asked(), func() (time.Time, error) {
		next, err := t.contest(ctx, p)
		if err != nil || !next.IsZero() {
			return next, err
		}
		next, err = t.hold(ctx, p)
		if err != nil && lasting(err) {
			t.unkept.Set(p.key.what(), err.Error())
		} else {
			t.unkept.Drop(p.key.what())
		}
		return next, err
	})
}

// lasting says whether an error of a write stays until somebody does something about it. What isn't found is the namespace.
func lasting(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsAlreadyExists(err)
}

// hold makes a capacity of this manager what it should be.
func (t *term) hold(ctx context.Context, p *part) (time.Time, error) {
	if p.anchor == nil {
		anchor, err := t.createAnchor(ctx, p)
		if err != nil {
			t.refuseAnchor(p, refused(err))
		}
		if err != nil || anchor == nil {
			return time.Time{}, err
		}
		p.anchor = anchor
	}
	err := t.ask(ctx, p)
	d := p.decide(known{t.classes, t.buffers})
	if err == nil {
		d, err = t.act(ctx, p, d)
	}
	if p.anchor == nil {
		return time.Time{}, err // the watch will show another one
	}
	if err != nil {
		d.trouble = refused(err)
	}
	t.metrics.show(p, d.Result, d.trouble)
	t.tell(p, d.trouble)
	s := t.status(p, d.Result, d.trouble)
	if err != nil {
		s = still(p.before, s)
	}
	if werr := t.writeStatus(ctx, p, s); werr != nil && err == nil {
		err = werr
	}
	return first(p.calendar.NextChange(p.now), d.LookAt, p.again), err
}

// refuseAnchor notes that a capacity can't have an anchor. There is no status then to say so in, so the metrics do, and keep
// tells /readyz.
func (t *term) refuseAnchor(p *part, trouble *status.Trouble) {
	t.metrics.show(p, plan.Result{Wanted: plan.Plan(p.now, p.want, p.have).Wanted}, trouble)
	t.tell(p, trouble)
}

// first is the earliest of times, of which zero ones are never.
func first(times ...time.Time) time.Time {
	times = slices.DeleteFunc(times, time.Time.IsZero)
	if len(times) == 0 {
		return time.Time{}
	}
	return slices.MinFunc(times, time.Time.Compare)
}

// ask finds out what the cluster has that a decision about a capacity goes by.
func (t *term) ask(ctx context.Context, p *part) error {
	if p.buffered() {
		return t.readBuffers(ctx)
	}
	t.readClasses(ctx, factory.PauseClassName(p.runner), p.capacity.Job.Class)
	return nil
}

// act does what was decided. What it can't do is told by the decision that it returns, or by the error.
func (t *term) act(ctx context.Context, p *part, d decision) (decision, error) {
	if p.buffered() {
		return t.keepBuffer(ctx, p, d)
	}
	if err := t.dropBuffer(ctx, p); err != nil || p.anchor == nil {
		return d, err
	}
	if d.Hold > 0 {
		if trouble := t.makeClass(ctx, factory.PauseClassName(p.runner)); trouble != nil {
			d = d.without(trouble)
		}
	}
	return d, t.apply(ctx, p, d.Result)
}

// refused sorts an error of our own writes.
func refused(err error) *status.Trouble {
	reason := status.API
	switch {
	case apierrors.IsForbidden(err):
		reason = status.Access
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		reason = status.Admission
	}
	return &status.Trouble{Reason: reason, Message: err.Error()}
}

// tell logs a trouble when it begins and ends.
func (t *term) tell(p *part, trouble *status.Trouble) {
	text := ""
	if trouble != nil {
		text = string(trouble.Reason)
	}
	switch {
	case text == p.memory.trouble:
	case trouble != nil:
		t.log.Warn("less capacity is held than is wanted", "capacity", p.key.name, "runner", p.runner, "reason", trouble.Reason, "message", trouble.Message)
	default:
		t.log.Info("nothing keeps capacity below what is wanted any more", "capacity", p.key.name)
	}
	p.memory.trouble = text
}

// status is what the anchor says.
func (t *term) status(p *part, r plan.Result, trouble *status.Trouble) status.Status {
	s := status.Status{
		Runner: p.runner.Name, Image: p.capacity.Image, Strategy: strategy(p.runner), Policy: p.calendar.At(p.now).InForce(),
		Want: r.Wanted, Hold: r.Hold, IdleTime: p.want.IdleTime.String(), Trouble: trouble, Lease: t.home.String(),
		ConfigError: t.rejected,
	}
	if change := p.calendar.NextChange(p.now); !change.IsZero() {
		s.NextChange = new(change.UTC())
	}
	if s.Strategy == config.StrategyBuffer {
		s.Held = p.held
		if !r.Surplus.IsZero() {
			s.Surplus = new(r.Surplus.UTC())
		}
	}
	if trouble != nil {
		trouble.Since = p.now.UTC().Truncate(time.Second)
		if was := p.before.Trouble; was != nil && was.Reason == trouble.Reason {
			trouble.Since = was.Since
		}
	}
	return s
}

// still is a status after a failure: what another strategy holds is held until that was taken away. By that it is known that
// it has to be.
func still(before, s status.Status) status.Status {
	if before.Strategy != "" && before.Strategy != s.Strategy {
		s.Strategy, s.Hold, s.Held, s.Surplus = before.Strategy, before.Hold, before.Held, before.Surplus
	}
	return s
}

// strategy is how room is held for the runner's jobs; a runner with idle pods has pause pods beside them.
func strategy(r config.Runner) string {
	if r.Kubernetes.IdleStrategy == config.StrategyBuffer {
		return config.StrategyBuffer
	}
	return config.StrategyPause
}
