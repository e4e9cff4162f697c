package preflight

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"

	"idlecount.dev/idlecount/factory"
)

// admission asks the API server to admit an idle pod of each pool and a pause pod of each capacity, as a dry run: everything
// that would judge the real pod judges this one, LimitRanges, Pod Security, quotas, priority classes, service accounts and
// policies, and nothing stays. Pause pods are made by the ReplicaSet controller, which only a policy that goes by who asks
// could tell from us. A pod that is admitted replaces the target's: it has what the cluster adds, such as a LimitRange's
// defaults.
func admission(ctx context.Context, o Options, targets []*target) []Result {
	mayCreate := map[string]error{}
	for _, namespace := range namespacesOf(o.Config) {
		mayCreate[namespace] = createsPods(ctx, o.Client, namespace)
	}
	results := make([]Result, len(targets))
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i, p := range targets {
		group.Go(func() error {
			r := Result{Check: Admission, Namespace: p.namespace(), Object: p.name}
			if err := mayCreate[p.namespace()]; err != nil {
				results[i] = unknown(r, p.about()+"can't try whether the API server takes "+p.pods(), err,
					"ask as somebody who may create pods in namespace "+p.namespace())
				return nil
			}
			admitted, warnings, err := try(ctx, o.Client, p.pod)
			results[i] = p.judge(r, admitted, warnings, err)
			results[i].Message = p.about() + results[i].Message
			if err == nil {
				p.pod = admitted
			}
			return nil
		})
	}
	_ = group.Wait()
	return results
}

// about says of which image the pods are, where they are for one.
func (p *target) about() string {
	if p.image == "" {
		return ""
	}
	return "image " + p.image + ": "
}

// pods are those of the target, for people.
func (p *target) pods() string {
	if p.pauses() {
		return "its pause pods"
	}
	return "its pods"
}

// createsPods is nil where this user may create pods in a namespace.
func createsPods(ctx context.Context, client kubernetes.Interface, namespace string) error {
	may, err := allowed(ctx, client, Account{}, namespace, right{"", "pods", "create"})
	if err == nil && !may {
		return fmt.Errorf("this user may not create pods in namespace %s", namespace)
	}
	return err
}

// try creates a pod as a dry run. The warnings are those that kubectl would print.
func try(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod) (admitted *corev1.Pod, warnings []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	result := client.CoreV1().RESTClient().Post().Namespace(pod.Namespace).Resource("pods").
		VersionedParams(&metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}, scheme.ParameterCodec).Body(pod).Do(ctx)
	for _, w := range result.Warnings() {
		warnings = append(warnings, w.Text)
	}
	admitted = &corev1.Pod{}
	if err := result.Into(admitted); err != nil {
		return nil, warnings, err
	}
	return admitted, warnings, nil
}

// judge says what the answer to a dry run means.
func (p *target) judge(r Result, admitted *corev1.Pod, warnings []string, err error) Result {
	switch {
	case err == nil && len(warnings) > 0:
		r.Status, r.Message, r.Fix = Warn, "the API server takes "+p.pods()+", but warns: "+strings.Join(warnings, "; "), remedy(warnings[0])
	case err == nil:
		r.Status, r.Message = OK, "the API server takes "+p.pods()+additions(p.pod, admitted)
	case apierrors.IsNotFound(err):
		r.Status, r.Message, r.Fix = Fail, words(err), "kubectl create namespace "+r.Namespace
	case apierrors.IsForbidden(err) && strings.Contains(words(err), "exceeded quota: "):
		// The pool may be what fills the quota; whether it is large enough is the question of another check.
		r.Status, r.Message, r.Fix = Warn, "there is no room for one more pod now: "+words(err), "see the quota's own line"
	case apierrors.IsForbidden(err) && strings.Contains(words(err), "no PriorityClass with name "+factory.PausePriorityClass+" "):
		r.Status, r.Message, r.Fix = Warn, "it can't be said yet whether the API server takes "+p.pods()+": "+words(err), "see the priority's own line"
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsInternalError(err):
		r.Status, r.Message, r.Fix = Fail, "the API server refuses "+p.pods()+": "+words(err), remedy(words(err))
	default: // among them a webhook that takes no dry runs
		r = unknown(r, "the API server doesn't say whether it takes "+p.pods(), err, "")
	}
	return r
}

// additions names the resources that the cluster gives to containers which the configuration gives none.
func additions(sent, admitted *corev1.Pod) string {
	var added []string
	for i, c := range slices.Concat(admitted.Spec.InitContainers, admitted.Spec.Containers) {
		before := slices.Concat(sent.Spec.InitContainers, sent.Spec.Containers)
		if i >= len(before) || before[i].Name != c.Name {
			added = append(added, "container "+c.Name) // a webhook's sidecar
			continue
		}
		for resource, limit := range c.Resources.Limits {
			if _, own := before[i].Resources.Limits[resource]; !own {
				added = append(added, fmt.Sprintf("a limit of %s %s to %s", limit.String(), resource, c.Name))
			}
		}
	}
	if len(added) == 0 {
		return ""
	}
	slices.Sort(added)
	return ", and adds " + strings.Join(added, ", ")
}

// remedy is what to do about a refusal. The API server tells its reasons apart by nothing but its words; where they are none
// of these, the words themselves must do.
func remedy(refusal string) string {
	for _, known := range []struct{ words, fix string }{
		{"PodSecurity", "set what it names in pod_security_context and the container_security_context tables, or change the namespace's pod-security.kubernetes.io labels"},
		{"failed quota: ", "set the cpu_request, memory_limit … that it names, for build, helper_ and service_, or give the namespace a LimitRange with defaults"},
		{"per Container", "change the requests and limits in [runners.kubernetes], or the namespace's LimitRange"},
		{"per Pod", "change the requests and limits in [runners.kubernetes], or the namespace's LimitRange"},
		{"limit to request ratio", "change the requests and limits in [runners.kubernetes], or the namespace's LimitRange"},
		{"service account", "make the ServiceAccount, or change service_account"},
		{"PriorityClass", "make the PriorityClass, or apply what `idlecount manifests` prints"},
		{"webhook", "see to the webhook that it names: real pods need its answer too"},
	} {
		if strings.Contains(refusal, known.words) {
			return known.fix
		}
	}
	return "change what it names, in [runners.kubernetes] or in the cluster"
}
