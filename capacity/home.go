package capacity

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"idlecount.dev/idlecount/factory"
)

// annotationNamespaces is where the managers' lease notes the namespaces in which capacity is, or was, kept. It is how a
// manager that starts with another configuration finds what the former one has left behind.
const annotationNamespaces = factory.Prefix + "capacity-namespaces"

// home is the lease by whose name anchors know their managers.
type home struct {
	client          kubernetes.Interface
	namespace, name string
	noted           []string // as the lease has them
}

func (h *home) String() string { return h.namespace + "/" + h.name }

// recall reads which namespaces the lease has noted.
func (h *home) recall(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	lease, err := h.client.CoordinationV1().Leases(h.namespace).Get(ctx, h.name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read which namespaces the lease %s has noted: %w", h, err)
	}
	h.noted = strings.FieldsFunc(lease.Annotations[annotationNamespaces], func(r rune) bool { return r == ',' })
	return nil
}

// note writes the namespaces into the lease, where they differ from what stands there.
func (h *home) note(ctx context.Context, namespaces []string) error {
	if slices.Equal(namespaces, h.noted) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"annotations": map[string]string{annotationNamespaces: strings.Join(namespaces, ",")},
	}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if _, err := h.client.CoordinationV1().Leases(h.namespace).Patch(ctx, h.name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("note the namespaces in the lease %s: %w", h, err)
	}
	h.noted = slices.Clone(namespaces)
	return nil
}
