package preflight

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"idlecount.dev/idlecount/config"
)

// namespaces finds out which namespaces are missing. RBAC grants rights in one that isn't there all the same, so that all
// else would be found good in it.
func namespaces(ctx context.Context, o Options) (results []Result, missing map[string]bool) {
	missing = map[string]bool{}
	all := namespacesOf(o.Config)
	if o.Manager != nil && o.LeaseNamespace != "" {
		all = append(all, o.LeaseNamespace)
		slices.Sort(all)
	}
	for _, name := range slices.Compact(all) {
		r := namespace(ctx, o, name)
		missing[name] = r.Status == Fail
		results = append(results, r)
	}
	return results, missing
}

func namespace(ctx context.Context, o Options, name string) Result {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	r := Result{Check: Namespace, Namespace: name}
	there, err := o.Client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		r.Status, r.Message, r.Fix = Fail, "doesn't exist, so nothing else is looked at in it", "kubectl create namespace "+name
	case err != nil:
		r = unknown(r, "can't see whether it exists", err, "ask as somebody who may get namespaces")
	case there.Status.Phase == corev1.NamespaceTerminating:
		r.Status, r.Message = Fail, "is being deleted, so nothing can be made in it"
		r.Fix = "wait for its end, then kubectl create namespace " + name
	default:
		r.Status, r.Message = OK, "exists"
	}
	return r
}

// without is what is left to look at where namespaces are missing.
func (o Options) without(missing map[string]bool) Options {
	rest := *o.Config
	rest.Runners = slices.DeleteFunc(slices.Clone(rest.Runners), func(r config.Runner) bool {
		return r.Managed() && missing[r.Kubernetes.Namespace]
	})
	o.Config = &rest
	if missing[o.LeaseNamespace] {
		o.LeaseNamespace = ""
	}
	return o
}
