package capacity

import (
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"idlecount.dev/idlecount/capacity/plan"
	"idlecount.dev/idlecount/capacity/status"
	"idlecount.dev/idlecount/factory"
)

// known is what the cluster was asked before anything is decided, since it is in no namespace.
type known struct {
	classes classes
	buffers bufferAPI
}

// decision is how much of a capacity is to be held, and what keeps that below what is wanted.
type decision struct {
	plan.Result
	trouble *status.Trouble
}

// decide is pure: passes act on what it says, previews tell it.
func (p *part) decide(k known) decision {
	r := plan.Plan(p.now, p.want, p.have)
	d := decision{r, boundTrouble(p, r)}
	if p.unknown != nil {
		return d.without(&status.Trouble{Reason: status.Config, Message: p.unknown.Error()})
	}
	unfit := k.buffers.unfit()
	if !p.buffered() {
		// Pods that jobs can't preempt would keep jobs out.
		unfit = k.classes.unfit(factory.PauseClassName(p.runner), p.capacity.Job)
	}
	if unfit != nil && d.Hold > 0 {
		d = d.without(unfit)
	}
	if d.trouble == nil && d.Hold > 0 && !p.buffered() {
		d.trouble = replicaTrouble(p.deployment)
	}
	return d
}

// without is a decision where nothing can be held.
func (d decision) without(trouble *status.Trouble) decision {
	return decision{plan.Result{Wanted: d.Wanted}, trouble}
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
		more := "jobs"
		if p.runner.QuotaHeadroom() == 1 {
			more = "job"
		}
		return &status.Trouble{Reason: status.Quota, Message: fmt.Sprintf(
			"the ResourceQuotas of namespace %s leave room for %d; room for %d more %s is kept free (idle_quota_headroom)",
			p.key.namespace, r.Hold, p.runner.QuotaHeadroom(), more)}
	case plan.Jobs:
		return &status.Trouble{Reason: status.Quota, Message: fmt.Sprintf(
			"a quota refused the pods of jobs, whose drivers asked for room; %d pause pods are left, the others come back within seconds", r.Hold)}
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
