package pool

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/cron"
	"idlecount.dev/idlecount/factory"
)

// key names a pool in the queue. An empty name stands for the namespace itself.
type key struct{ namespace, name string }

func (k key) String() string { return k.namespace + "/" + k.name }

// what is how /readyz names the pool.
func (k key) what() string { return "pool " + k.String() }

// pool is one pool as the configuration has it.
type pool struct {
	key      key
	runner   config.Runner
	label    string // of the runner
	shape    factory.Shape
	image    string
	calendar cron.Calendar
	// templates remembers the template hash for each idle time, since computing one builds a whole pod.
	templates map[time.Duration]string
}

// poolsOf finds the pools of a configuration: one for each image of each runner that may ever want an idle pod.
func poolsOf(c *config.Config, log *slog.Logger) (map[key]*pool, error) {
	pools := map[key]*pool{}
	for _, r := range c.Runners {
		if !r.Managed() || !r.KeepsPods() {
			continue
		}
		for _, image := range r.IdleImages() {
			schedule, err := r.ScheduleFor(image)
			if err != nil {
				return nil, err
			}
			if !schedule.EverWants() {
				continue
			}
			shape, err := factory.ShapeOf(r, factory.Job{Image: image})
			if err != nil {
				return nil, fmt.Errorf("%s: the pool of image %s: %w", r, image, err)
			}
			k := key{shape.Namespace, factory.PoolName(r, shape)}
			if first, taken := pools[k]; taken {
				log.Warn("two entries of the configuration make one pool: the first one holds",
					"pool", k.name, "image", image, "first", first.runner, "second", r)
				continue
			}
			pools[k] = &pool{key: k, runner: r, label: factory.RunnerLabel(r), shape: shape, image: image, calendar: cron.Calendar{Schedule: schedule}, templates: map[time.Duration]string{}}
		}
	}
	return pools, nil
}

// namespacesOf are the namespaces in which the configuration's runners have pods, idle or not, sorted.
func namespacesOf(c *config.Config) []string {
	namespaces := map[string]bool{}
	for _, r := range c.Runners {
		if r.Managed() {
			namespaces[r.Kubernetes.Namespace] = true
		}
	}
	return slices.Sorted(maps.Keys(namespaces))
}

// runnersOf are the labels of the runners that this manager is responsible for.
func runnersOf(c *config.Config) map[string]bool {
	runners := map[string]bool{}
	for _, r := range c.Runners {
		if r.Managed() {
			runners[factory.RunnerLabel(r)] = true
		}
	}
	return runners
}

// owner is the pool's runner.
func (p *pool) owner() runnerIn { return runnerIn{p.key.namespace, p.label} }

func (p *pool) template(idleTime time.Duration) string {
	hash, ok := p.templates[idleTime]
	if !ok {
		hash = factory.TemplateHash(p.runner, p.shape, idleTime)
		p.templates[idleTime] = hash
	}
	return hash
}
