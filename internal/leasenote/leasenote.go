// Package leasenote keeps, in an annotation of the managers' lease, the namespaces in which its managers have something, or
// had. It is how a manager that starts with another configuration finds what the former one has left behind.
package leasenote

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// Note is one annotation of one lease. It is for one goroutine.
type Note struct {
	Client          kubernetes.Interface
	Namespace, Name string // of the lease
	Annotation      string

	namespaces []string // as the lease has them, as far as is known
}

// String is the lease, "namespace/name".
func (n *Note) String() string { return n.Namespace + "/" + n.Name }

// Namespaces are those that were last read or written.
func (n *Note) Namespaces() []string { return slices.Clone(n.namespaces) }

// Read reads the note.
func (n *Note) Read(ctx context.Context) error {
	lease, err := n.Client.CoordinationV1().Leases(n.Namespace).Get(ctx, n.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read which namespaces the lease %s has noted: %w", n, err)
	}
	n.namespaces = Of(lease, n.Annotation)
	return nil
}

// Write writes the namespaces, in their order, where they differ from what stands there.
func (n *Note) Write(ctx context.Context, namespaces []string) error {
	namespaces = slices.Sorted(slices.Values(namespaces))
	if slices.Equal(namespaces, n.namespaces) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"annotations": map[string]string{n.Annotation: strings.Join(namespaces, ",")},
	}})
	if err != nil {
		return err
	}
	if _, err := n.Client.CoordinationV1().Leases(n.Namespace).Patch(ctx, n.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("note the namespaces in the lease %s: %w", n, err)
	}
	n.namespaces = namespaces
	return nil
}

// Of reads what Write has written.
func Of(lease *coordinationv1.Lease, annotation string) []string {
	return strings.FieldsFunc(lease.Annotations[annotation], func(r rune) bool { return r == ',' })
}

// Noted are the namespaces that a lease, "namespace/name", has noted; none where it can't be read.
func Noted(ctx context.Context, client kubernetes.Interface, name, annotation string) []string {
	namespace, name, ok := strings.Cut(name, "/")
	if !ok {
		return nil
	}
	lease, err := client.CoordinationV1().Leases(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return Of(lease, annotation)
}
