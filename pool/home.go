package pool

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/pool/status"
)

// annotationNamespaces is where the lease notes the namespaces in which its managers have, or had, pools, separated by
// commas. It is how a manager that starts with another configuration finds what the former one has left behind.
const annotationNamespaces = factory.Prefix + "namespaces"

// home is what a manager is besides its pools: the lease by whose name its anchors know it, and the namespaces that stand
// there.
type home struct {
	client                    kubernetes.Interface
	lease                     string // namespace/name
	leaseNamespace, leaseName string
	noted                     []string // as the lease has them; used by the worker only
}

// recall reads which namespaces the lease has noted, notes those of the configuration too, and returns those that the
// configuration doesn't have.
func (h *home) recall(ctx context.Context, configured []string) (old []string, err error) {
	lease, err := h.client.CoordinationV1().Leases(h.leaseNamespace).Get(ctx, h.leaseName, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read which namespaces the lease %s has noted: %w", h.lease, err)
	}
	h.noted = noted(lease.Annotations[annotationNamespaces])
	for _, namespace := range h.noted {
		if !slices.Contains(configured, namespace) {
			old = append(old, namespace)
		}
	}
	return old, h.note(ctx, append(slices.Clone(old), configured...))
}

// add notes namespaces besides those that stand in the lease.
func (h *home) add(ctx context.Context, namespaces []string) error {
	all := slices.Clone(h.noted)
	for _, namespace := range namespaces {
		if !slices.Contains(all, namespace) {
			all = append(all, namespace)
		}
	}
	return h.note(ctx, all)
}

// noted reads what note has written.
func noted(annotation string) []string {
	return strings.FieldsFunc(annotation, func(r rune) bool { return r == ',' })
}

// note writes the namespaces into the lease, where they differ from what stands there.
func (h *home) note(ctx context.Context, namespaces []string) error {
	slices.Sort(namespaces)
	if slices.Equal(namespaces, h.noted) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"annotations": map[string]string{annotationNamespaces: strings.Join(namespaces, ",")},
	}})
	if err != nil {
		return err
	}
	_, err = h.client.CoordinationV1().Leases(h.leaseNamespace).Patch(ctx, h.leaseName, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("note the namespaces in the lease %s: %w", h.lease, err)
	}
	h.noted = namespaces
	return nil
}

// leaveNamespace forgets a namespace that the configuration doesn't have, once nothing of this manager is left in it.
func (c *controller) leaveNamespace(ctx context.Context, namespace string, n *namespaceCache) error {
	if slices.Contains(c.configs.now().namespaces, namespace) || !slices.Contains(c.home.noted, namespace) {
		return nil
	}
	for _, obj := range n.anchors.GetStore().List() {
		anchor, ok := obj.(metav1.Object)
		if !ok {
			continue
		}
		if s, err := status.Of(n.anchor(key{namespace, anchor.GetName()})); err == nil && s.Lease == c.home.lease {
			return nil // its deletion brings us back
		}
	}
	rest := slices.DeleteFunc(slices.Clone(c.home.noted), func(noted string) bool { return noted == namespace })
	if err := c.home.note(ctx, rest); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	c.leave(namespace)
	c.log.Info("nothing is left in a namespace that the configuration doesn't have", "namespace", namespace)
	return nil
}
