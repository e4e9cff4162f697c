package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	capacitystatus "idlecount.dev/idlecount/capacity/status"
	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/internal/leases"
	"idlecount.dev/idlecount/pool/status"
)

// statusList is what `status` prints as JSON and YAML.
type statusList struct {
	Pools    []status.Pool        `json:"pools"`
	Managers []status.Manager     `json:"managers"` // of those pools and capacities, by lease
	Capacity []capacitystatus.Row `json:"capacity,omitempty"`
}

func (l statusList) empty() bool { return len(l.Pools)+len(l.Capacity) == 0 }

// names are those of the pools, then those of the capacities.
func (l statusList) names() []string {
	var names []string
	for _, p := range l.Pools {
		names = append(names, p.Name)
	}
	for _, c := range l.Capacity {
		names = append(names, c.Name)
	}
	return names
}

// leases are those that pools and capacities name, each once.
func (l statusList) leases() []string {
	return l.each(func(p status.Pool) string { return p.Lease }, func(c capacitystatus.Row) string { return c.Lease })
}

// configErrors are those that pools and capacities name, each once: all of a manager's have the same.
func (l statusList) configErrors() []string {
	return l.each(func(p status.Pool) string { return p.ConfigError }, func(c capacitystatus.Row) string { return c.ConfigError })
}

// each is what pools and capacities have of something, each text once, in their order.
func (l statusList) each(ofPool func(status.Pool) string, ofCapacity func(capacitystatus.Row) string) []string {
	var texts []string
	add := func(text string) {
		if text != "" && !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	for _, p := range l.Pools {
		add(ofPool(p))
	}
	for _, c := range l.Capacity {
		add(ofCapacity(c))
	}
	return texts
}

// picture is what the cluster holds at a time of what was asked for.
type picture struct {
	anchors    []corev1.ConfigMap // of pools
	pods       []corev1.Pod       // of pools
	capacities []corev1.ConfigMap // anchors of all of them, since which jobs one is for goes by the others of its runner
	pauses     []corev1.Pod       // pause pods
	jobs       []corev1.Pod       // of all runners; only read where there are capacities
}

// rows puts a picture together.
func (o *statusOptions) rows(p picture) statusList {
	return statusList{
		Pools: status.Pools(p.anchors, p.pods, o.withPods), Managers: []status.Manager{},
		Capacity: slices.DeleteFunc(capacitystatus.Rows(p.capacities, p.pauses, p.jobs), func(r capacitystatus.Row) bool { return !o.asked(r.Name) }),
	}
}

// asked says whether a capacity was asked for.
func (o *statusOptions) asked(name string) bool {
	return len(o.names) == 0 || slices.Contains(o.names, name)
}

// anyAsked says whether one of the capacities was asked for: else nobody asks for the jobs, and there may be many.
func (o *statusOptions) anyAsked(capacities []corev1.ConfigMap) bool {
	return slices.ContainsFunc(capacities, func(a corev1.ConfigMap) bool { return o.asked(a.Name) })
}

// selector selects, of what has a label, that of the pools or capacities that were asked for.
func (o *statusOptions) selector(label string) string {
	if len(o.names) == 0 {
		return label
	}
	return label + " in (" + strings.Join(o.names, ",") + ")"
}

// anchors reads the ConfigMaps of the pools that were asked for, and of the capacities.
func (o *statusOptions) anchors(ctx context.Context, client kubernetes.Interface) (picture, error) {
	pools, err := client.CoreV1().ConfigMaps(o.namespace).List(ctx, metav1.ListOptions{LabelSelector: o.selector(factory.LabelPool)})
	if err != nil {
		return picture{}, fmt.Errorf("list the pools' ConfigMaps: %w", err)
	}
	capacities, err := client.CoreV1().ConfigMaps(o.namespace).List(ctx, metav1.ListOptions{LabelSelector: factory.LabelCapacity})
	if err != nil {
		return picture{}, fmt.Errorf("list the capacities' ConfigMaps: %w", err)
	}
	return picture{anchors: pools.Items, capacities: capacities.Items}, nil
}

// read takes one picture of what was asked for.
func (o *statusOptions) read(ctx context.Context, client kubernetes.Interface) (statusList, error) {
	p, err := o.anchors(ctx, client)
	if err != nil {
		return statusList{}, err
	}
	pods := func(what, selector string) []corev1.Pod {
		if err != nil {
			return nil
		}
		var list *corev1.PodList
		if list, err = client.CoreV1().Pods(o.namespace).List(ctx, metav1.ListOptions{LabelSelector: selector}); err != nil {
			err = fmt.Errorf("list %s: %w", what, err)
			return nil
		}
		return list.Items
	}
	p.pods = pods("the pools' pods", o.selector(factory.LabelPool))
	if o.anyAsked(p.capacities) {
		p.pauses = pods("pause pods", o.selector(factory.LabelCapacity))
		p.jobs = pods("the pods of jobs", capacitystatus.JobSelector)
	}
	if err != nil {
		return statusList{}, err
	}
	return o.compute(ctx, client, p)
}

func (o *statusOptions) compute(ctx context.Context, client kubernetes.Interface, p picture) (statusList, error) {
	list := o.rows(p)
	var err error
	list.Managers, err = o.managers(ctx, client, list)
	return list, err
}

// managers reads the leases that pools and capacities name. A lease that this user may not read is no error: they are.
func (o *statusOptions) managers(ctx context.Context, client kubernetes.Interface, list statusList) ([]status.Manager, error) {
	managers := []status.Manager{}
	for _, lease := range list.leases() {
		namespace, name, _ := strings.Cut(lease, "/")
		found, err := client.CoordinationV1().Leases(namespace).Get(ctx, name, metav1.GetOptions{})
		switch {
		case err == nil:
			managers = append(managers, status.ManagerOf(lease, found, o.now()))
		case apierrors.IsNotFound(err):
			managers = append(managers, status.ManagerOf(lease, nil, o.now()))
		case apierrors.IsForbidden(err):
			managers = append(managers, status.Manager{Lease: lease, State: leases.Unknown})
		default:
			return nil, fmt.Errorf("get the managers' lease %s: %w", lease, err)
		}
	}
	return managers, nil
}
