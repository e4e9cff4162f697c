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
	resourcehelper "k8s.io/component-helpers/resource"

	"idlecount.dev/idlecount/factory"
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
func headroom(quota *corev1.ResourceQuota, targets []*target, moments []moment, ours []corev1.Pod) Result {
	r := Result{Check: Quota, Status: OK, Namespace: quota.Namespace, Object: quota.Name}
	var fits, tight, never []string
	for _, name := range slices.Sorted(maps.Keys(quota.Spec.Hard)) {
		hard := quota.Spec.Hard[name]
		need, most := peak(quota, name, targets, moments)
		if need.IsZero() {
			continue // nothing of ours counts towards it
		}
		others := quota.Status.Used[name].DeepCopy()
		for i := range ours {
			if applies(quota, &ours[i]) {
				others.Sub(usage(&ours[i], name))
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
func peak(quota *corev1.ResourceQuota, name corev1.ResourceName, targets []*target, moments []moment) (need resource.Quantity, most moment) {
	units := make([]resource.Quantity, len(targets))
	for i, t := range targets {
		if applies(quota, t.pod) {
			units[i] = usage(t.pod, name)
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

// usage is what a pod takes of a resource as a ResourceQuota counts it.
func usage(pod *corev1.Pod, name corev1.ResourceName) resource.Quantity {
	if name == corev1.ResourcePods || name == "count/pods" {
		return *resource.NewQuantity(1, resource.DecimalSI)
	}
	if limit, ok := strings.CutPrefix(string(name), "limits."); ok {
		return resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})[corev1.ResourceName(limit)]
	}
	request := strings.TrimPrefix(string(name), corev1.DefaultResourceRequestsPrefix)
	return resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})[corev1.ResourceName(request)]
}

// applies says whether a quota counts a pod that is idle: the scopes of ResourceQuota, of which a pod must be in all.
func applies(quota *corev1.ResourceQuota, pod *corev1.Pod) bool {
	for _, scope := range quota.Spec.Scopes {
		if !inScope(corev1.ScopedResourceSelectorRequirement{ScopeName: scope, Operator: corev1.ScopeSelectorOpExists}, pod) {
			return false
		}
	}
	if quota.Spec.ScopeSelector == nil {
		return true
	}
	return !slices.ContainsFunc(quota.Spec.ScopeSelector.MatchExpressions, func(s corev1.ScopedResourceSelectorRequirement) bool {
		return !inScope(s, pod)
	})
}

func inScope(s corev1.ScopedResourceSelectorRequirement, pod *corev1.Pod) bool {
	switch s.ScopeName {
	case corev1.ResourceQuotaScopeTerminating: // an idle pod has no deadline; its claim gives it one
		return pod.Spec.ActiveDeadlineSeconds != nil
	case corev1.ResourceQuotaScopeNotTerminating:
		return pod.Spec.ActiveDeadlineSeconds == nil
	case corev1.ResourceQuotaScopeBestEffort:
		return bestEffort(pod)
	case corev1.ResourceQuotaScopeNotBestEffort:
		return !bestEffort(pod)
	case corev1.ResourceQuotaScopePriorityClass:
		class := pod.Spec.PriorityClassName
		switch s.Operator {
		case corev1.ScopeSelectorOpExists:
			return class != ""
		case corev1.ScopeSelectorOpDoesNotExist:
			return class == ""
		case corev1.ScopeSelectorOpIn:
			return slices.Contains(s.Values, class)
		case corev1.ScopeSelectorOpNotIn:
			return !slices.Contains(s.Values, class)
		}
	case corev1.ResourceQuotaScopeCrossNamespacePodAffinity, corev1.ResourceQuotaScopeVolumeAttributesClass:
	}
	return false // our pods have neither affinities nor claims of volumes
}

func bestEffort(pod *corev1.Pod) bool {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, list := range []corev1.ResourceList{c.Resources.Requests, c.Resources.Limits} {
			for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
				if q := list[name]; !q.IsZero() {
					return false
				}
			}
		}
	}
	return true
}
