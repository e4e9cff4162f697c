package preflight

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/cron"
	"idlecount.dev/idlecount/factory"
)

// target is an image of a runner. Pods are made of it, by the manager while idle ones are wanted, else by the driver.
type target struct {
	runner   config.Runner
	name     string
	image    string
	schedule cron.Schedule
	pod      *corev1.Pod // as it would be created, and as it would be admitted, once admission has found that out
	services bool
}

func targetsOf(cfg *config.Config) ([]*target, error) {
	var targets []*target
	seen := map[string]bool{}
	for _, r := range cfg.Runners {
		if !r.Managed() || !r.KeepsPods() {
			continue
		}
		for _, image := range r.IdleImages() {
			schedule, err := r.ScheduleFor(image)
			if err != nil {
				return nil, err
			}
			shape, err := factory.ShapeOf(r, factory.Job{Image: image})
			if err != nil {
				return nil, fmt.Errorf("%s: the pool of image %s: %w", r, image, err)
			}
			p := &target{runner: r, name: factory.PoolName(r, shape), image: image, schedule: schedule, services: len(shape.Services) > 0}
			if seen[shape.Namespace+"/"+p.name] {
				continue
			}
			seen[shape.Namespace+"/"+p.name] = true
			p.pod = factory.IdlePod(r, shape, p.name+"-preflight", schedule.Default.IdleTime, factory.Owner{})
			p.pod.OwnerReferences = nil // the anchor may not be there yet
			targets = append(targets, p)
		}
	}
	return targets, nil
}

func (p *target) namespace() string { return p.pod.Namespace }

// namespacesOf are the namespaces in which runners have pods, sorted.
func namespacesOf(cfg *config.Config) []string {
	namespaces := map[string]bool{}
	for _, r := range cfg.Runners {
		if r.Managed() {
			namespaces[r.Kubernetes.Namespace] = true
		}
	}
	return slices.Sorted(maps.Keys(namespaces))
}
