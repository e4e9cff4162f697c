package config

import (
	"slices"

	"idlecount.dev/idlecount/cron"
)

// KeepsPods says whether idle pods are kept for the runner's jobs to claim.
func (r Runner) KeepsPods() bool {
	return r.Kubernetes.IdleStrategy == "" || r.Kubernetes.IdleStrategy == StrategyPods
}

// KeepsCapacity says whether room for the runner's jobs is kept: instead of idle pods, or beside them.
func (r Runner) KeepsCapacity() bool {
	k := r.Kubernetes
	return !r.KeepsPods() || k.IdlePauseCount > 0 || slices.ContainsFunc(k.IdlePolicies, func(p IdlePolicy) bool {
		return p.IdlePauseCount != nil && *p.IdlePauseCount > 0
	})
}

// CapacitySchedule is when room for how many jobs with an image is kept: by idle_count and scale_factor where that is the
// strategy, by idle_pause_count where it is kept beside idle pods, whose business the others are then. "" stands for all
// images that have none of their own (see CapacityImages).
func (r Runner) CapacitySchedule(image string) (cron.Schedule, error) {
	if !r.KeepsPods() {
		return r.ScheduleFor(image)
	}
	k := &r.Kubernetes
	k.IdleCount, k.ScaleFactor, k.ScaleFactorLimit = k.IdlePauseCount, 0, 0
	k.IdleOverrides, k.Autoscaler.Policies = nil, nil
	k.IdlePolicies = slices.Clone(k.IdlePolicies)
	for i := range k.IdlePolicies {
		p := &k.IdlePolicies[i]
		p.IdleCount, p.ScaleFactor, p.ScaleFactorLimit = p.IdlePauseCount, nil, nil
	}
	return r.ScheduleFor("")
}

// CapacityImages are the job images for which room is kept apart, since their idle_image says that their pods are larger or
// smaller, or how many are wanted. The first is "", which stands for all others.
func (r Runner) CapacityImages() []string {
	images := []string{""}
	if r.KeepsPods() {
		return images
	}
	for _, o := range r.Kubernetes.IdleOverrides {
		if o.Image != "" && (o.IdleCount != nil || o.sized()) {
			images = append(images, o.Image)
		}
	}
	return images
}

// sized says whether an idle_image changes how much room a pod takes.
func (o IdleImage) sized() bool {
	return o.Services != nil || slices.ContainsFunc(o.quantities(""), func(p quantityPair) bool {
		return p.request != nil || p.limit != nil
	})
}

// defaultQuotaHeadroom: without any, pause pods that fill a quota would keep jobs out.
const defaultQuotaHeadroom = 1

// QuotaHeadroom is for how many job pods pause pods leave room in each ResourceQuota of the namespace that counts both.
func (r Runner) QuotaHeadroom() int {
	if h := r.Kubernetes.IdleQuotaHeadroom; h != nil {
		return *h
	}
	return defaultQuotaHeadroom
}

// foreign says that idlecount never makes a pod for the runner's jobs: it holds room for those of another executor, whose
// images and folders are none of its business.
func (r Runner) foreign() bool {
	if r.Executor == ExecutorCustom {
		return false
	}
	return !r.KeepsPods() || r.KeepsCapacity() && !r.wantsPods()
}

// wantsPods says whether idle pods of any image may be wanted, whatever images there are.
func (r Runner) wantsPods() bool {
	count, factor := r.wants("")
	return count > 0 || factor > 0 || slices.ContainsFunc(r.Kubernetes.IdleOverrides, func(o IdleImage) bool {
		return o.IdleCount != nil && *o.IdleCount > 0
	})
}

// mostKept is how many idle pods of all images, and for how many jobs room, the policies want at most. Where a scale_factor
// alone wants some it is 1, whatever it will be.
func (r Runner) mostKept() (idle, room int) {
	sum := func(images []string) (all int) {
		for _, image := range images {
			n, factor := r.wants(image)
			if n == 0 && factor > 0 {
				n = 1
			}
			all += n
		}
		return all
	}
	if !r.KeepsPods() {
		return 0, sum(r.CapacityImages())
	}
	images := r.IdleImages()
	if len(images) == 0 {
		images = []string{""} // still to be named
	}
	room = r.Kubernetes.IdlePauseCount
	for _, p := range r.Kubernetes.IdlePolicies {
		if p.IdlePauseCount != nil {
			room = max(room, *p.IdlePauseCount)
		}
	}
	return sum(images), room
}

// pause checks what is about room that is kept for jobs.
func (c *checker) pause() {
	k := c.runner.Kubernetes
	if n := k.IdlePauseCount; n < 0 || n > maxIdleCount {
		c.wrong("kubernetes.idle_pause_count", "%d is out of range: it must be from 0 to %d", n, maxIdleCount)
	}
	if h := k.IdleQuotaHeadroom; h != nil && (*h < 0 || *h > maxIdleCount) {
		c.wrong("kubernetes.idle_quota_headroom", "%d is out of range: it must be from 0 to %d", *h, maxIdleCount)
	}
	if !c.runner.KeepsPods() && (c.isSet("kubernetes.idle_pause_count") || c.policySets(func(p IdlePolicy) bool { return p.IdlePauseCount != nil })) {
		c.wrong("kubernetes.idle_pause_count", "is for pause pods beside idle pods (idle_strategy = %q); with %q idle_count says how many are kept",
			StrategyPods, k.IdleStrategy)
	}
	if c.isSet("kubernetes.idle_quota_headroom") && !c.runner.KeepsCapacity() {
		c.warn("kubernetes.idle_quota_headroom", "has no effect: no pause pods are kept")
	}
	c.patches()
	c.bounds()
	c.nothing()
}

// nothing warns of a strategy by which nothing is kept, and of room that holds nothing.
func (c *checker) nothing() {
	k := c.runner.Kubernetes
	if !c.runner.KeepsPods() && !c.setAnywhere("idle_count", "scale_factor") && len(k.Autoscaler.Policies) == 0 &&
		!slices.ContainsFunc(k.IdleOverrides, func(o IdleImage) bool { return o.IdleCount != nil }) {
		c.warn("kubernetes.idle_strategy", "is %q, and no room is kept: neither idle_count nor scale_factor is set here or in an idle_policy", k.IdleStrategy)
	}
	requests := []string{k.CPURequest, k.CPULimit, k.MemoryRequest, k.MemoryLimit, k.PodCPURequest, k.PodMemoryRequest}
	unsized := !slices.ContainsFunc(requests, func(q string) bool { return q != "" })
	if c.runner.KeepsCapacity() && unsized && (len(k.PodSpec) == 0 || !c.runner.FollowsPodSpec()) {
		c.warn("kubernetes.cpu_request", "is not set, nor is memory_request: a pause pod is as large as a job's pod, and one that requests nothing holds nothing")
	}
}

// bounds warns where less room is allowed than is wanted. That of idle pods alone is judged with them.
func (c *checker) bounds() {
	idle, room := c.runner.mostKept()
	if room == 0 || idle+room > maxIdleCount { // which is an error of its own
		return
	}
	if limit := c.runner.Limit; limit > 0 && room > limit {
		c.warn("limit", "is %d: it also bounds room for jobs, which is wanted for up to %d", limit, room)
	} else if limit > 0 && idle <= limit && idle+room > limit {
		c.warn("limit", "is %d: it bounds idle pods and room for jobs together, of which up to %d and %d are wanted", limit, idle, room)
	}
	if most := c.runner.Kubernetes.Autoscaler.MaxPausePods; most > 0 && room > most {
		c.warn("kubernetes.autoscaler.max_pause_pods", "is %d, and room is wanted for up to %d", most, room)
	}
}

// policySets says whether any idle_policy has a key.
func (c *checker) policySets(has func(IdlePolicy) bool) bool {
	return slices.ContainsFunc(c.runner.Kubernetes.IdlePolicies, has)
}
