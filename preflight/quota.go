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

// quotas compares each ResourceQuota of the runners' namespaces with what the idle pods take when the policies want most.
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
		return []Result{unknown(r, "can't see which pods are idle ones", err, "ask as somebody who may list pods in namespace "+namespace)}
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
		results = append(results, headroom(&list.Items[i], here, moments, ours))
	}
	return results
}

// unclaimed are the pods in a namespace that are kept idle, or are on their way to it.
func unclaimed(ctx context.Context, client kubernetes.Interface, namespace string) ([]corev1.Pod, error) {
	list, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: factory.LabelState + "=" + factory.StateIdle})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool {
		return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	}), nil
}

// headroom judges one quota. What has no claim yet counts as ours: it is part of what is wanted.
func headroom(q *corev1.ResourceQuota, targets []*target, moments []moment, ours []corev1.Pod) Result {
	r := Result{Check: Quota, Status: OK, Namespace: q.Namespace, Object: q.Name}
	var fits, tight, never []string
	for _, name := range slices.Sorted(maps.Keys(q.Spec.Hard)) {
		hard := q.Spec.Hard[name]
		need, most := peak(q, name, targets, moments)
		if need.IsZero() {
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
		switch {
		case need.Cmp(hard) > 0:
			never = append(never, fmt.Sprintf("%s: %s of %s%s", name, need.String(), hard.String(), most.when()))
		case need.Cmp(free) > 0:
			tight = append(tight, fmt.Sprintf("%s: %s of %s%s, where others use %s now", name, need.String(), hard.String(), most.when(), others.String()))
		default:
			fits = append(fits, fmt.Sprintf("%s: %s of %s", name, need.String(), hard.String()))
		}
	}
	const fix = "raise the quota, or lower idle_count; jobs that start cold need room beside the idle pods"
	switch {
	case len(never) > 0:
		r.Status, r.Message, r.Fix = Fail, "idle pods alone need more than it allows: "+strings.Join(slices.Concat(never, tight), "; "), fix
	case len(tight) > 0:
		r.Status, r.Message, r.Fix = Warn, "idle pods need more than is left: "+strings.Join(tight, "; "), fix
	case len(fits) > 0:
		r.Message = "idle pods fit at the most that policies want: " + strings.Join(fits, "; ")
	default:
		r.Message = "idle pods don't count towards it"
	}
	return r
}

// peak is the moment at which the targets take most of a resource, and how much that is.
func peak(q *corev1.ResourceQuota, name corev1.ResourceName, targets []*target, moments []moment) (need resource.Quantity, most moment) {
	units := make([]resource.Quantity, len(targets))
	for i, t := range targets {
		if quota.Applies(q, t.pod) {
			units[i] = quota.Usage(t.pod, name)
		}
	}
	for _, m := range moments {
		var sum resource.Quantity
		for i, count := range m.counts {
			one := units[i].DeepCopy()
			one.Mul(int64(count))
			sum.Add(one)
		}
		if sum.Cmp(need) > 0 {
			need, most = sum, m
		}
	}
	return need, most
}
