package capacity

import (
	"context"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"idlecount.dev/idlecount/capacity/plan"
	"idlecount.dev/idlecount/capacity/status"
	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/factory"
)

// keep makes one capacity what it should be, and says when to look again.
func (t *term) keep(ctx context.Context, n *namespaceCache, p *part) (time.Time, error) {
	if err := t.owned(p); err != nil {
		return time.Time{}, err
	}
	if p.anchor == nil {
		anchor, err := t.createAnchor(ctx, p)
		if err != nil || anchor == nil {
			return time.Time{}, err
		}
		p.anchor = anchor
	}
	r := plan.Plan(p.now, p.want, p.have)
	trouble := boundTrouble(p, r)
	var err error
	if p.runner.Kubernetes.IdleStrategy == config.StrategyBuffer {
		trouble, err = t.keepBuffer(ctx, n, p, r, trouble)
	} else {
		trouble, err = t.keepDeployment(ctx, n, p, &r, trouble)
	}
	if err != nil {
		trouble = refused(err)
	}
	t.metrics.show(p.key.name, r, p.held, p.pending, p.have.Jobs, trouble)
	t.tell(p, trouble)
	if werr := t.writeStatus(ctx, p, r, trouble); werr != nil && err == nil {
		err = werr
	}
	next := p.calendar.NextChange(p.now)
	if !r.LookAt.IsZero() && (next.IsZero() || r.LookAt.Before(next)) {
		next = r.LookAt
	}
	return next, err
}

// owned says why a capacity isn't this manager's to keep.
func (t *term) owned(p *part) error {
	switch {
	case p.before.Lease == "" || p.before.Lease == t.home.String():
	case p.memory.owned:
		// The manager that started last has it; to take it back would begin a quarrel.
		return fmt.Errorf("the capacity %s was taken over by the managers of lease %s; only one configuration may have the runner %s",
			p.key.name, p.before.Lease, p.runner)
	default:
		t.log.Warn("a capacity is taken over from another manager", "capacity", p.key.name, "lease", p.before.Lease)
	}
	p.memory.owned = true
	return nil
}

// keepDeployment holds a capacity by pause pods.
func (t *term) keepDeployment(ctx context.Context, n *namespaceCache, p *part, r *plan.Result, trouble *status.Trouble) (*status.Trouble, error) {
	d := n.deployment(p.key.namespace, p.key.name)
	if err := t.dropBuffer(ctx, p); err != nil {
		return trouble, err
	}
	if r.Hold > 0 {
		if unfit := t.checkClass(ctx, factory.PauseClassName(p.runner), p.capacity.Job); unfit != nil {
			// Pods that jobs can't preempt would keep jobs out.
			trouble, r.Hold, r.Surplus = unfit, 0, time.Time{}
		}
	}
	if trouble == nil && r.Hold > 0 {
		trouble = replicaTrouble(d)
	}
	return trouble, t.apply(ctx, p, d, *r)
}

// boundTrouble is what keeps a capacity below what is wanted, as the plan has it.
func boundTrouble(p *part, r plan.Result) *status.Trouble {
	switch r.Bound {
	case plan.Limit:
		what := fmt.Sprintf("limit = %d", p.runner.Limit)
		if most := p.runner.Kubernetes.Autoscaler.MaxPausePods; most > 0 && (p.runner.Limit == 0 || most < p.runner.Limit) {
			what = fmt.Sprintf("max_pause_pods = %d", most)
		}
		return &status.Trouble{Reason: status.Limit, Message: fmt.Sprintf("%s leaves room for %d beside the runner's jobs and idle pods", what, r.Hold)}
	case plan.Quota:
		return &status.Trouble{Reason: status.Quota, Message: fmt.Sprintf(
			"the ResourceQuotas of namespace %s leave room for %d; room for %d more jobs is kept free (idle_quota_headroom)",
			p.key.namespace, r.Hold, p.runner.QuotaHeadroom())}
	default:
		return nil
	}
}

// replicaTrouble is what the API server says of pods that the Deployment's controller can't make.
func replicaTrouble(d *appsv1.Deployment) *status.Trouble {
	if d == nil {
		return nil
	}
	for _, c := range d.Status.Conditions {
		if c.Type != appsv1.DeploymentReplicaFailure || c.Status != corev1.ConditionTrue {
			continue
		}
		reason := status.Admission
		if strings.Contains(c.Message, "exceeded quota") { // a condition has no code
			reason = status.Quota
		}
		return &status.Trouble{Reason: reason, Message: c.Message}
	}
	return nil
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
	}
	if change := p.calendar.NextChange(p.now); !change.IsZero() {
		s.NextChange = new(change.UTC())
	}
	if s.Strategy == config.StrategyBuffer && !r.Surplus.IsZero() {
		s.Surplus = new(r.Surplus.UTC())
	}
	if trouble != nil {
		trouble.Since = p.now.UTC().Truncate(time.Second)
		if was := p.before.Trouble; was != nil && was.Reason == trouble.Reason {
			trouble.Since = was.Since
		}
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
