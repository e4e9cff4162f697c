package leases

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Look is one look at leases, by who only wants to tell what is. It is for one goroutine.
type Look struct {
	client kubernetes.Interface
	now    time.Time
	held   map[string]bool
}

// NewLook is a look at a time.
func NewLook(client kubernetes.Interface, now time.Time) *Look {
	return &Look{client: client, now: now, held: map[string]bool{}}
}

// Held says whether a lease, "namespace/name", is held. One that can't be read is no obstacle, as it is none to a manager that
// begins.
func (l *Look) Held(ctx context.Context, lease string) bool {
	namespace, name, ok := strings.Cut(lease, "/")
	if !ok {
		return false
	}
	if _, known := l.held[lease]; !known {
		found, err := l.client.CoordinationV1().Leases(namespace).Get(ctx, name, metav1.GetOptions{})
		l.held[lease] = err == nil && Read(found, l.now).State == Held
	}
	return l.held[lease]
}

// Most is the lease that is named most often, "" where none is.
func Most(named []string) string {
	counts := map[string]int{}
	for _, lease := range named {
		counts[lease]++
	}
	most := ""
	for _, lease := range slices.Sorted(maps.Keys(counts)) {
		if lease != "" && (most == "" || counts[lease] > counts[most]) {
			most = lease
		}
	}
	return most
}
