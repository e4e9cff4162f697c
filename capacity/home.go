package capacity

import (
	"context"

	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/internal/leasenote"
)

// annotationNamespaces is where the managers' lease notes the namespaces in which capacity is, or was, kept.
const annotationNamespaces = factory.Prefix + "capacity-namespaces"

// home is the lease by whose name anchors know their managers, and what stands there. Its requests are bounded.
type home struct{ note leasenote.Note }

func (h *home) String() string { return h.note.String() }

func (h *home) recall(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return h.note.Read(ctx)
}

func (h *home) write(ctx context.Context, namespaces []string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return h.note.Write(ctx, namespaces)
}
