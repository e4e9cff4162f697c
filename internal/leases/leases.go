// Package leases reads the leases by which managers elect a leader: whether somebody holds one, and whether what the managers
// of another lease have may be taken from them. It knows nothing of what they have.
package leases

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// State says what a lease tells about its manager.
type State string

// The states of a lease.
const (
	Held    State = "held"    // a manager leads
	Lapsed  State = "lapsed"  // the last leader has released it, or has not renewed it for its duration
	Absent  State = "absent"  // there is no such lease
	Unknown State = "unknown" // it can't be read
)

// Reading is what a lease says at a time.
type Reading struct {
	Holder  string     // identity of the leader, or of the last one
	Renewed *time.Time // when the lease was last renewed
	State   State
}

// Read reads a lease; nil stands for one that doesn't exist. The time is that of the reader, so two clocks that differ by
// more than the lease's duration (9 s) make a held lease look lapsed.
func Read(lease *coordinationv1.Lease, now time.Time) Reading {
	r := Reading{State: Absent}
	if lease == nil {
		return r
	}
	spec := lease.Spec
	if spec.HolderIdentity != nil {
		r.Holder = *spec.HolderIdentity
	}
	r.State = Lapsed
	if spec.RenewTime == nil {
		return r
	}
	r.Renewed = new(spec.RenewTime.UTC())
	if r.Holder != "" && now.Before(r.Renewed.Add(lasts(lease))) {
		r.State = Held
	}
	return r
}

// lasts is how long a lease is held after it was renewed.
func lasts(lease *coordinationv1.Lease) time.Duration {
	if d := lease.Spec.LeaseDurationSeconds; d != nil {
		return time.Duration(*d) * time.Second
	}
	return 0
}
