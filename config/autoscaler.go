package config

import (
	"fmt"
	"strings"
)

// Autoscaler is [runners.kubernetes.autoscaler], by which GitLab Runner's own kubernetes executor keeps pause pods. With
// any other executor nothing of GitLab's acts on it, and its policies say what idlecount keeps.
type Autoscaler struct {
	MaxPausePods              int                `toml:"max_pause_pods"`
	PausePodImage             string             `toml:"pause_pod_image"`
	PausePodPriorityClassName string             `toml:"pause_pod_priority_class_name"`
	PausePodImagePullSecrets  []string           `toml:"pause_pod_image_pull_secrets"`
	Policies                  []AutoscalerPolicy `toml:"policy"`
}

// AutoscalerPolicy is one [[runners.kubernetes.autoscaler.policy]]; the last that matches wins, where none does no idle
// pod is wanted.
type AutoscalerPolicy struct {
	Periods          []string  `toml:"periods"`  // default: always
	Timezone         string    `toml:"timezone"` // default: the system's
	IdleCount        int       `toml:"idle_count"`
	IdleTime         *Duration `toml:"idle_time"` // default: idle_time of [runners.kubernetes]
	ScaleFactor      float64   `toml:"scale_factor"`
	ScaleFactorLimit int       `toml:"scale_factor_limit"`
	PreemptiveMode   *bool     `toml:"preemptive_mode"` // read, and answered with a warning
}

// executorKubernetes is GitLab Runner's own executor for Kubernetes, which makes its own pods.
const executorKubernetes = "kubernetes"

// readsAutoscaler says whether the policies of [runners.kubernetes.autoscaler] are idlecount's to act on.
func (r Runner) readsAutoscaler() bool {
	return r.Executor != executorKubernetes && len(r.Kubernetes.Autoscaler.Policies) > 0
}

// policies are those that say what is kept, and the name of the i-th among the keys of [runners.kubernetes].
func (r Runner) policies() (list []IdlePolicy, name func(i int) string) {
	if !r.readsAutoscaler() {
		return r.Kubernetes.IdlePolicies, func(i int) string { return fmt.Sprintf("idle_policy[%d]", i) }
	}
	for _, p := range r.Kubernetes.Autoscaler.Policies {
		list = append(list, IdlePolicy{
			Periods: p.Periods, Timezone: p.Timezone, IdleCount: &p.IdleCount, IdleTime: p.IdleTime,
			ScaleFactor: &p.ScaleFactor, ScaleFactorLimit: &p.ScaleFactorLimit,
		})
	}
	return list, func(i int) string { return fmt.Sprintf("autoscaler.policy[%d]", i) }
}

// autoscaler checks the stock table, where its policies are idlecount's to act on.
func (c *checker) autoscaler() {
	k := c.runner.Kubernetes
	if len(k.Autoscaler.Policies) == 0 {
		return
	}
	const table = "kubernetes.autoscaler"
	if c.runner.Executor == executorKubernetes { // and has keys of ours, else nobody would look at it
		if idle, room := c.runner.mostKept(); idle+room == 0 {
			c.warn(table, `has policies, on which GitLab Runner itself acts with executor = "kubernetes", and idlecount keeps nothing: `+
				`for room that idlecount keeps move them to [[runners.kubernetes.idle_policy]]`)
			return
		}
		c.warn(table, `has policies, on which GitLab Runner itself acts with executor = "kubernetes": it keeps pause pods beside what idlecount keeps; `+
			`take them away, or move them to [[runners.kubernetes.idle_policy]]`)
		return
	}
	var both []string
	for _, key := range []string{"idle_policy", "idle_count", "scale_factor", "scale_factor_limit"} {
		if c.isSet("kubernetes." + key) {
			both = append(both, key)
		}
	}
	if len(both) > 0 {
		c.wrong(table, "says how many idle pods are wanted, and so does %s of [runners.kubernetes]: only one of both can hold; "+
			"take [runners.kubernetes.autoscaler] or the keys of idlecount away", strings.Join(both, ", "))
	}
	policies, name := c.runner.policies()
	for i, p := range policies {
		c.policy("kubernetes."+name(i), p)
		if mode := k.Autoscaler.Policies[i].PreemptiveMode; mode != nil && *mode {
			c.warn("kubernetes."+name(i)+".preemptive_mode", "has no effect: GitLab Runner asks for jobs as it likes, "+
				"and a job that finds no idle pod starts in a new one; limit and request_concurrency of [[runners]] bound how many it asks for")
		}
	}
	if c.runner.KeepsCapacity() {
		return // the other keys are about pause pods, and there are some
	}
	for _, key := range []string{"max_pause_pods", "pause_pod_image", "pause_pod_priority_class_name", "pause_pod_image_pull_secrets"} {
		if c.isSet(table + "." + key) {
			c.warn(table+"."+key, "has no effect: idlecount keeps pods that jobs can use at once, and no pause pods; limit of [[runners]] bounds their number")
		}
	}
}
