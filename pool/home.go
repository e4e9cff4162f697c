package pool

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/internal/leasenote"
	"idlecount.dev/idlecount/pool/status"
)

// annotationNamespaces is where the lease notes the namespaces in which its managers have, or had, pools.
const annotationNamespaces = factory.Prefix + "namespaces"

// home is what a manager is besides its pools: the lease by whose name its anchors know it, and the namespaces that stand
// there; those are used by the worker only.
type home struct {
	lease string      // namespace/name
	holds func() bool // whether nobody else can have taken it
	note  leasenote.Note
}

func newHome(o Options, holds func() bool) *home {
	return &home{lease: o.lease(), holds: holds, note: leasenote.Note{
		Client: o.Client, Namespace: o.LeaseNamespace, Name: o.LeaseName, Annotation: annotationNamespaces,
	}}
}

// recall reads which namespaces the lease has noted, notes those of the configuration too, and returns those that the
// configuration doesn't have.
func (h *home) recall(ctx context.Context, configured []string) (old []string, err error) {
	if err := h.note.Read(ctx); err != nil {
		return nil, err
	}
	for _, namespace := range h.note.Namespaces() {
		if !slices.Contains(configured, namespace) {
			old = append(old, namespace)
		}
	}
	return old, h.note.Write(ctx, append(slices.Clone(old), configured...))
}

// add notes namespaces besides those that stand in the lease.
func (h *home) add(ctx context.Context, namespaces []string) error {
	all := h.note.Namespaces()
	for _, namespace := range namespaces {
		if !slices.Contains(all, namespace) {
			all = append(all, namespace)
		}
	}
	return h.note.Write(ctx, all)
}

// leaveNamespace forgets a namespace that the configuration doesn't have, once nothing of this manager is left in it.
func (c *controller) leaveNamespace(ctx context.Context, namespace string, n *namespaceCache) error {
	if slices.Contains(c.configs.now().namespaces, namespace) || !slices.Contains(c.home.note.Namespaces(), namespace) {
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
	rest := slices.DeleteFunc(c.home.note.Namespaces(), func(noted string) bool { return noted == namespace })
	if err := c.home.note.Write(ctx, rest); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	c.leave(namespace)
	c.log.Info("nothing is left in a namespace that the configuration doesn't have", "namespace", namespace)
	return nil
}
