package config

import (
	"errors"
	"fmt"
	"slices"

	"idlecount.dev/idlecount/cron"
)

// always is the period of a policy that names none, as in GitLab's [[runners.autoscaler.policy]].
const always = "* * * * *"

// ScheduleFor is when the runner wants how many idle pods of an image: the values of [runners.kubernetes] itself, and its
// policies. The error names every period that can't be read; after Load there is none, unless the time zone database has
// changed.
//
// The idle_count of the image's idle_image replaces that of the policy in force, or of the table, wherever that is not 0:
// what is scaled to zero is so for all images. Only where neither the table nor any policy has a count above 0 is it the
// table's, since nothing else could be meant.
func (r Runner) ScheduleFor(image string) (cron.Schedule, error) {
	table, values := r.values(image)
	policies, name := r.policies()
	schedule := cron.Schedule{Default: table, Lead: r.Kubernetes.IdleLeadTime.Duration}
	var errs []error
	for i, policy := range policies {
		var periods []cron.Period
		for j, spec := range policy.periods() {
			period, err := cron.ParsePeriod(spec, policy.Timezone)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s.kubernetes.%s.periods[%d]: %w", r.Path, name(i), j, err))
			}
			periods = append(periods, period)
		}
		schedule.Policies = append(schedule.Policies, cron.Policy{Name: name(i), Periods: periods, Values: values[i]})
	}
	return schedule, errors.Join(errs...)
}

// values are what holds for an image by the table, and in each policy.
func (r Runner) values(image string) (table cron.Values, policies []cron.Values) {
	k := r.Kubernetes
	table = cron.Values{
		IdleCount: k.IdleCount, IdleTime: k.IdleTime.Duration, ScaleFactor: k.ScaleFactor, ScaleFactorLimit: k.ScaleFactorLimit,
	}
	list, _ := r.policies()
	override, _ := r.override(image)
	counts := func(p IdlePolicy) bool { return p.IdleCount != nil && *p.IdleCount > 0 }
	if override.IdleCount != nil && table.IdleCount == 0 && !slices.ContainsFunc(list, counts) {
		table.IdleCount = *override.IdleCount
	}
	for _, policy := range list {
		values := table
		inherit(&values.IdleCount, policy.IdleCount)
		inherit(&values.ScaleFactor, policy.ScaleFactor)
		inherit(&values.ScaleFactorLimit, policy.ScaleFactorLimit)
		if policy.IdleTime != nil {
			values.IdleTime = policy.IdleTime.Duration
		}
		policies = append(policies, values)
	}
	replace := func(values *cron.Values) {
		if values.IdleCount != 0 {
			inherit(&values.IdleCount, override.IdleCount)
		}
	}
	replace(&table)
	for i := range policies {
		replace(&policies[i])
	}
	return table, policies
}

// periods are those of the policy, or the one that is always.
func (p IdlePolicy) periods() []string {
	if p.Periods == nil {
		return []string{always}
	}
	return p.Periods
}

// wants says how many idle pods of an image are wanted at most, and by which factor of those in use.
func (r Runner) wants(image string) (count int, factor float64) {
	table, policies := r.values(image)
	count, factor = table.IdleCount, table.ScaleFactor
	for _, p := range policies {
		count, factor = max(count, p.IdleCount), max(factor, p.ScaleFactor)
	}
	return count, factor
}

// inherit replaces a value of the table by that of a policy or an image, where it has one.
func inherit[T any](value *T, policy *T) {
	if policy != nil {
		*value = *policy
	}
}
