package leases

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
)

const (
	// every is how often the lease is read whose managers have something of this one's, soon while it isn't known yet whether
	// it is held.
	every = 15 * time.Second
	soon  = 2 * time.Second
	// requestTimeout bounds the request.
	requestTimeout = 10 * time.Second
)

// Rival is what is known of another lease, whose managers have something of this one's configuration. The zero value is
// that of one that was never read.
type Rival struct {
	State State // "" while it isn't known

	looked time.Time // when it was last read
	record string    // who holds it and when that was renewed, as last read
	since  time.Time // when record was first read
}

// after is r once the lease was read at now. Like leader election it goes by what changes and not by the times in the lease:
// the clocks of two machines may differ.
func (r Rival) after(now time.Time, lease *coordinationv1.Lease) Rival {
	m := Read(lease, now)
	if m.State == Absent || m.Holder == "" || m.Renewed == nil {
		return Rival{looked: now, State: cmp.Or(m.State, Lapsed)}
	}
	next := Rival{looked: now, record: m.Holder + " " + m.Renewed.String(), since: now, State: Held}
	switch {
	case next.record == r.record:
		next.since, next.State = r.since, r.State
		if now.Sub(r.since) > lasts(lease) {
			next.State = Lapsed
		}
	case r.record == "" && m.State != Held:
		next.State = "" // it may have ended, or have another clock
	}
	return next
}

// Again is when the lease is to be read next.
func (r Rival) Again() time.Time {
	if r.State == "" {
		return r.looked.Add(soon)
	}
	return r.looked.Add(every)
}

// Rivals reads the leases of others, each at most so often. It is for one goroutine.
type Rivals struct {
	Client kubernetes.Interface
	Clock  clock.PassiveClock

	known map[string]Rival // by namespace/name
}

// Of is what is known of a lease, "namespace/name".
func (rs *Rivals) Of(ctx context.Context, lease string) (Rival, error) {
	r, now := rs.known[lease], rs.Clock.Now()
	if !r.looked.IsZero() && now.Before(r.Again()) {
		return r, nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	namespace, name, _ := strings.Cut(lease, "/")
	if name == "" {
		return Rival{looked: now, State: Absent}, nil // not written by a manager
	}
	found, err := rs.Client.CoordinationV1().Leases(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case err == nil:
		r = r.after(now, found)
	case apierrors.IsNotFound(err):
		r = Rival{looked: now, State: Absent}
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		r = Rival{looked: now, State: Unknown}
	default:
		return r, fmt.Errorf("read the lease %s of other managers: %w", lease, err)
	}
	if rs.known == nil {
		rs.known = map[string]Rival{}
	}
	rs.known[lease] = r
	return r, nil
}
