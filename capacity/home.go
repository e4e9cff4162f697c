package capacity

import (
	"context"
	"slices"
	"strings"
	"time"

	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/internal/leasenote"
)

// annotationNamespaces is where the managers' lease notes the namespaces in which capacity is, or was, kept.
const annotationNamespaces = factory.Prefix + "capacity-namespaces"

// home is the lease by whose name anchors know their managers, and what stands there. Its requests are bounded.
type home struct {
	note   leasenote.Note
	failed backoff
}

func (h *home) String() string { return h.note.String() }

func (h *home) recall(ctx context.Context) error {
	return h.attempt(ctx, "read", h.note.Read)
}

func (h *home) write(ctx context.Context, namespaces []string) error {
	if slices.Equal(slices.Sorted(slices.Values(namespaces)), h.note.Namespaces()) {
		return nil
	}
	return h.attempt(ctx, "write "+strings.Join(namespaces, ","), func(ctx context.Context) error { return h.note.Write(ctx, namespaces) })
}

func (h *home) attempt(ctx context.Context, what string, do func(context.Context) error) error {
	if err := h.failed.waits(time.Now(), what); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err := do(ctx)
	h.failed = h.failed.after(time.Now(), what, err)
	return err
}
