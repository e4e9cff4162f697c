package preflight

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"idlecount.dev/idlecount/capacity"
	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/cron"
	"idlecount.dev/idlecount/factory"
)

// target is an image of a runner, of which pods are made, by the manager while idle ones are wanted, else by the driver; or
// a capacity of a runner, for which pause pods are made.
type target struct {
	runner   config.Runner
	name     string
	image    string // of a capacity "" where it is for all that have none of their own
	schedule cron.Schedule
	pod      *corev1.Pod // as it would be created, and as it would be admitted, once admission has found that out
	services bool

	job *corev1.Pod // of a capacity: what a quota counts of one job; nil = the pods are idle ones
}

// pauses says whether the pods are pause pods.
func (p *target) pauses() bool { return p.job != nil }

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

// pausesOf are the capacities that pause pods hold, in the namespaces that there are.
func pausesOf(ctx context.Context, o Options) ([]*target, error) {
	demands, err := capacity.Demands(o.Config, func(namespace string) []*corev1.LimitRange {
		return limitRanges(ctx, o.Client, namespace)
	})
	if err != nil {
		return nil, err
	}
	var targets []*target
	for _, d := range demands {
		if d.Buffered {
			continue // no pod is made for it
		}
		template := d.Capacity.Template.DeepCopy()
		pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
		pod.Namespace, pod.Name = d.Capacity.Namespace, d.Capacity.Name+"-preflight"
		targets = append(targets, &target{
			runner: d.Runner, name: d.Capacity.Name, image: d.Capacity.Image, schedule: d.Schedule, pod: pod, job: d.Job,
		})
	}
	return targets, nil
}

// limitRanges are those of a namespace. Where they can't be seen pause pods are as large as without, as with a manager that
// lacks the right: the check of rights tells of that.
func limitRanges(ctx context.Context, client kubernetes.Interface, namespace string) []*corev1.LimitRange {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	list, err := client.CoreV1().LimitRanges(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil
	}
	var ranges []*corev1.LimitRange
	for i := range list.Items {
		ranges = append(ranges, &list.Items[i])
	}
	return ranges
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
