package config

import (
	"errors"
	"fmt"

	"idlecount.dev/idlecount/cron"
)

// always is the period of a policy that names none, as in GitLab's [[runners.autoscaler.policy]].
const always = "* * * * *"

// Schedule is when the runner wants how many idle pods: the values of [runners.kubernetes] itself, and its policies. The
// error names every period that can't be read; after Load there is none, unless the time zone database has changed.
func (r Runner) Schedule() (cron.Schedule, error) {
	k := r.Kubernetes
	schedule := cron.Schedule{Default: cron.Values{
		IdleCount: k.IdleCount, IdleTime: k.IdleTime.Duration, ScaleFactor: k.ScaleFactor, ScaleFactorLimit: k.ScaleFactorLimit,
	}}
	var errs []error
	for i, policy := range k.IdlePolicies {
		values := schedule.Default
		inherit(&values.IdleCount, policy.IdleCount)
		inherit(&values.ScaleFactor, policy.ScaleFactor)
		inherit(&values.ScaleFactorLimit, policy.ScaleFactorLimit)
		if policy.IdleTime != nil {
			values.IdleTime = policy.IdleTime.Duration
		}
		var periods []cron.Period
		for j, spec := range policy.periods() {
			period, err := cron.ParsePeriod(spec, policy.Timezone)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s.kubernetes.idle_policy[%d].periods[%d]: %w", r.Path, i, j, err))
			}
			periods = append(periods, period)
		}
		schedule.Policies = append(schedule.Policies,
			cron.Policy{Name: fmt.Sprintf("idle_policy[%d]", i), Periods: periods, Values: values})
	}
	return schedule, errors.Join(errs...)
}

// periods are those of the policy, or the one that is always.
func (p IdlePolicy) periods() []string {
	if p.Periods == nil {
		return []string{always}
	}
	return p.Periods
}

// wants says whether idle pods are wanted at any time.
func (r Runner) wants() (count int, factor float64) {
	k := r.Kubernetes
	count, factor = k.IdleCount, k.ScaleFactor
	for _, p := range k.IdlePolicies {
		if p.IdleCount != nil {
			count = max(count, *p.IdleCount)
		}
		if p.ScaleFactor != nil {
			factor = max(factor, *p.ScaleFactor)
		}
	}
	return count, factor
}

func inherit[T any](value *T, policy *T) {
	if policy != nil {
		*value = *policy
	}
}
