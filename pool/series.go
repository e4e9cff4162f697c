package pool

import (
	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/pool/plan"
)

// series is how metrics name a pool. The runner is its name in the configuration, as in the pool's status.
type series struct{ namespace, runner, pool, image string }

func seriesLabels() []string {
	return []string{labelNamespace, labelRunner, labelPoolName, labelImage}
}

// with are the values of seriesLabels, and of some more.
func (s series) with(more ...string) []string {
	return append([]string{s.namespace, s.runner, s.pool, s.image}, more...)
}

// The labels of pods that no pool has: jobs bring any image, so that all these share one name.
const (
	noPool     = "none"
	otherImage = "other"
)

func (p *pool) series() series {
	return series{p.key.namespace, p.runner.Name, p.key.name, p.image}
}

// series is that of the pass's pool; one that isn't configured has the name that its anchor remembers.
func (p *pass) series() series {
	switch {
	case p.pool != nil:
		return p.pool.series()
	case p.anchor != nil:
		return series{p.key.namespace, p.before.Runner, p.key.name, p.image}
	}
	runner := ""
	for _, pod := range p.cache.podsBy(byPool, p.key.name) {
		runner = pod.Labels[factory.LabelRunner]
	}
	return p.setup.noPool(p.key.namespace, runner)
}

// noPool is the series of a runner's pods that no pool has. A runner without pools is called as its pods' label has it.
func (s *setup) noPool(namespace, label string) series {
	name := noPool
	if s.runners[label] {
		name = label
	}
	for _, p := range s.pools {
		if p.label == label {
			name = p.runner.Name
			break
		}
	}
	return series{namespace, name, noPool, otherImage}
}

// claimResults are what a job gets.
func claimResults() []string {
	return []string{string(factory.Warm), string(plan.Warming), string(factory.Cold)}
}
