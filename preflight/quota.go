package preflight

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/internal/quota"
)

// quotas compares each ResourceQuota of the runners' namespaces with what the idle pods and pause pods take when the policies
// want most, and what is to be left for jobs beside these.
func quotas(ctx context.Context, o Options, targets []*target) []Result {
	var results []Result
	for _, namespace := range namespacesOf(o.Config) {
		results = append(results, quotasOf(ctx, o, namespace, targets)...)
	}
	return results
}

func quotasOf(ctx context.Context, o Options, namespace string, targets []*target) []Result {
	r := Result{Check: Quota, Namespace: namespace}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	list, err := o.Client.CoreV1().ResourceQuotas(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		if apierrors.IsForbidden(err) {
			return []Result{unknown(r, "can't see the quotas", err, "ask as somebody who may list resourcequotas in namespace "+namespace)}
		}
		return []Result{unknown(r, "can't see the quotas", err, "")}
	}
	if len(list.Items) == 0 {
		r.Status, r.Message = OK, "the namespace has no ResourceQuota"
		return []Result{r}
	}
	ours, err := unclaimed(ctx, o.Client, namespace)
	if err != nil {
		return []Result{unknown(r, "can't see which pods are ours", err, "ask as somebody who may list pods in namespace "+namespace)}
	}
	var here []*target
	for _, p := range targets {
		if p.namespace() == namespace {
			here = append(here, p)
		}
	}
	moments := highest(here, o.Now())
	var results []Result
	for i := range list.Items {
		results = append(results, fit(&list.Items[i], here, moments, ours))
	}
	return results
}

// unclaimed are the pods in a namespace that are kept idle, or are on their way to it, and the pause pods.
func unclaimed(ctx context.Context, client kubernetes.Interface, namespace string) ([]corev1.Pod, error) {
	var pods []corev1.Pod
	for _, selector := range []string{factory.LabelState + "=" + factory.StateIdle, factory.LabelCapacity} {
		list, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return nil, err
		}
		pods = append(pods, list.Items...)
	}
	return slices.DeleteFunc(pods, func(p corev1.Pod) bool {
		return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	}), nil
}

// fit judges one quota. What has no claim yet counts as ours: it is part of what is wanted.
func fit(q *corev1.ResourceQuota, targets []*target, moments []moment, ours []corev1.Pod) Result {
	r := Result{Check: Quota, Status: OK, Namespace: q.Namespace, Object: q.Name}
	var fits, tight, never []string
	for _, name := range slices.Sorted(maps.Keys(q.Spec.Hard)) {
		hard := q.Spec.Hard[name]
		most := peak(q, name, targets, moments)
		if most.need.IsZero() {
			continue // nothing of ours counts towards it
		}
		others := q.Status.Used[name].DeepCopy()
		for i := range ours {
			if quota.Applies(q, &ours[i]) {
				others.Sub(quota.Usage(&ours[i], name))
			}
		}
		free := hard.DeepCopy()
		free.Sub(others)
		text := fmt.Sprintf("%s: %s of %s", name, most.need.String(), hard.String())
		if !most.left.IsZero() {
			text += fmt.Sprintf(" (%s of it for jobs)", most.left.String())
		}
		switch {
		case most.need.Cmp(hard) > 0:
			never = append(never, text+most.when())
		case most.need.Cmp(free) > 0:
			tight = append(tight, text+most.when()+fmt.Sprintf(", where others use %s now", others.String()))
		default:
			fits = append(fits, text)
		}
	}
	pods, fix := kinds(targets)
	switch {
	case len(never) > 0:
		r.Status, r.Message, r.Fix = Fail, pods+" alone need more than it allows: "+strings.Join(slices.Concat(never, tight), "; "), fix
	case len(tight) > 0:
		r.Status, r.Message, r.Fix = Warn, pods+" need more than is left: "+strings.Join(tight, "; "), fix
	case len(fits) > 0:
		r.Message = pods + " fit at the most that policies want: " + strings.Join(fits, "; ")
	default:
		r.Message = pods + " don't count towards it"
	}
	return r
}

// kinds names the pods of the targets, and says what to do where a quota has no room for them.
func kinds(targets []*target) (pods, fix string) {
	pauses := func(p *target) bool { return p.pauses() }
	idle := func(p *target) bool { return !p.pauses() }
	const lower = "raise the quota, or lower idle_count"
	switch {
	case !slices.ContainsFunc(targets, pauses):
		return "idle pods", lower + "; jobs that start cold need room beside the idle pods"
	case !slices.ContainsFunc(targets, idle):
		return "pause pods", lower + " or idle_quota_headroom; until then less room is held than is wanted"
	default:
		return "idle pods and pause pods", lower + ", idle_pause_count or idle_quota_headroom; until then fewer are kept than are wanted"
	}
}

// load is what a moment takes of a resource. left is the part of it that pause pods leave for jobs.
type load struct {
	moment
	need, left resource.Quantity
}

// peak is the moment at which the targets take most of a resource, and how much that is. What is left for jobs is so once for
// all capacities: each of them sees what the others have taken.
func peak(q *corev1.ResourceQuota, name corev1.ResourceName, targets []*target, moments []moment) load {
	units, headrooms := make([]resource.Quantity, len(targets)), make([]resource.Quantity, len(targets))
	for i, t := range targets {
		if quota.Applies(q, t.pod) {
			units[i] = quota.Usage(t.pod, name)
		}
		if t.pauses() && !units[i].IsZero() && quota.Applies(q, t.job) {
			headrooms[i] = quota.Times(quota.Usage(t.job, name), t.runner.QuotaHeadroom())
		}
	}
	var most load
	for _, m := range moments {
		var sum, left resource.Quantity
		for i, count := range m.counts {
			sum.Add(quota.Times(units[i], count))
			if count > 0 && headrooms[i].Cmp(left) > 0 {
				left = headrooms[i]
			}
		}
		sum.Add(left)
		if sum.Cmp(most.need) > 0 {
			most = load{m, sum, left}
		}
	}
	return most
}
