package pool

import (
	"context"
	"maps"
	"strings"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"idlecount.dev/idlecount/factory"
)

// notedLeases are the leases of a namespace as the elector of one of them sees and writes it. What the managers have noted in it
// outlives it: when somebody deletes it, the elector makes it again in the same term, and without the notes nobody would look
// for what is left in a namespace that the configuration no longer has. What was noted since the lease was renewed last is lost.
type notedLeases struct {
	coordinationclient.LeaseInterface

	mu    sync.Mutex
	uid   types.UID
	notes map[string]string // as that lease had them when it was seen last
}

// Leases makes it a LeasesGetter; there is one namespace.
func (l *notedLeases) Leases(string) coordinationclient.LeaseInterface { return l }

func (l *notedLeases) Get(ctx context.Context, name string, o metav1.GetOptions) (*coordinationv1.Lease, error) {
	lease, err := l.LeaseInterface.Get(ctx, name, o)
	if err == nil && !l.saw(lease) {
		l.carry(lease) // the elector writes it so when it leads
	}
	return lease, err
}

func (l *notedLeases) Create(ctx context.Context, lease *coordinationv1.Lease, o metav1.CreateOptions) (*coordinationv1.Lease, error) {
	l.carry(lease)
	return l.wrote(l.LeaseInterface.Create(ctx, lease, o))
}

func (l *notedLeases) Update(ctx context.Context, lease *coordinationv1.Lease, o metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return l.wrote(l.LeaseInterface.Update(ctx, lease, o))
}

// saw remembers the notes of a lease. It is false for another one than was seen before, which may lack them.
func (l *notedLeases) saw(lease *coordinationv1.Lease) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.uid != "" && l.uid != lease.UID {
		return false
	}
	l.remember(lease)
	return true
}

func (l *notedLeases) wrote(lease *coordinationv1.Lease, err error) (*coordinationv1.Lease, error) {
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.remember(lease)
	}
	return lease, err
}

func (l *notedLeases) remember(lease *coordinationv1.Lease) {
	l.uid, l.notes = lease.UID, map[string]string{}
	for key, value := range lease.Annotations {
		if strings.HasPrefix(key, factory.Prefix) {
			l.notes[key] = value
		}
	}
}

// carry gives a lease the notes that it lacks.
func (l *notedLeases) carry(lease *coordinationv1.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := maps.Clone(l.notes)
	if len(all) == 0 {
		return
	}
	maps.Copy(all, lease.Annotations)
	lease.Annotations = all
}
