package status

import (
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"idlecount.dev/idlecount/internal/leases"
)

// Manager is whether anybody manages the pools whose anchors name a lease.
type Manager struct {
	Lease   string       `json:"lease"`             // namespace/name
	Holder  string       `json:"holder,omitempty"`  // identity of the leader, or of the last one
	Renewed *time.Time   `json:"renewed,omitempty"` // when the lease was last renewed
	State   leases.State `json:"state"`
}

// ManagerOf reads a manager's state from its lease; see leases.Read.
func ManagerOf(name string, lease *coordinationv1.Lease, now time.Time) Manager {
	r := leases.Read(lease, now)
	return Manager{Lease: name, Holder: r.Holder, Renewed: r.Renewed, State: r.State}
}

// Warning is what a user has to know of a manager that isn't there, and of the effect of that; "" where there is nothing to
// say.
func (m Manager) Warning(now time.Time, effect string) string {
	switch m.State {
	case leases.Absent:
		return fmt.Sprintf("no manager runs: there is no lease %s, %s; start `idlecount run`", m.Lease, effect)
	case leases.Lapsed:
		last := ""
		if m.Holder != "" && m.Renewed != nil {
			last = fmt.Sprintf(" (%s renewed it %s ago)", m.Holder, Age(*m.Renewed, now))
		}
		return fmt.Sprintf("no manager holds the lease %s%s: %s", m.Lease, last, effect)
	default:
		return ""
	}
}

// Reason says in one line what is to be known of a pool beyond its counts: why idle pods are missing, or why the row is
// odd; "" where nothing is. manager is that of the pool, nil where it isn't known.
func (p Pool) Reason(manager *Manager, now time.Time) string {
	switch {
	case !p.Managed:
		return "no pool has this shape: its jobs start cold"
	case p.Unreadable != "":
		return oneLine(p.Unreadable)
	case p.Drained:
		return p.drained(manager)
	case p.ReplacedBy != "":
		return p.replaced()
	case p.Paused && p.Short > 0:
		return fmt.Sprintf("%d short: paused; `idlecount resume` fills the pool again", p.Short)
	case p.Paused:
		return "paused; `idlecount resume` ends that"
	case p.Short == 0:
		return p.full(now)
	}
	short := fmt.Sprintf("%d short: ", p.Short)
	switch {
	case p.Shortfall != nil:
		s := *p.Shortfall
		return short + fmt.Sprintf("%s for %s: %s", s.Reason, Age(s.Since, now), oneLine(s.Message))
	case p.Warming > 0:
		return short + fmt.Sprintf("%d warming, the first for %s", p.Warming, Age(*p.OldestWarming, now))
	case manager != nil && manager.State != leases.Held && manager.State != leases.Unknown:
		return short + "no manager runs"
	default:
		return short + "the manager has named no reason yet"
	}
}

// full says what is to be known of a pool that has what it wants: that its pods are still those of a former configuration.
func (p Pool) full(now time.Time) string {
	if p.Shortfall == nil || !p.Shortfall.Replacing {
		return ""
	}
	s := *p.Shortfall
	return fmt.Sprintf("replacements of the idle pods, which a changed configuration asks for, are missing: %s for %s: %s",
		s.Reason, Age(s.Since, now), oneLine(s.Message))
}

// drained says how far the draining of a pool is.
func (p Pool) drained(manager *Manager) string {
	const ends = "`idlecount resume` fills the pool again"
	switch left := p.Idle + p.Warming + p.Failed; {
	case left == 0:
		return "drained; " + ends
	case manager != nil && manager.State != leases.Held && manager.State != leases.Unknown:
		return fmt.Sprintf("drained, but no manager runs to remove its idle pods (%d left); %s", left, ends)
	default:
		return fmt.Sprintf("drained: idle pods go (%d left); %s", left, ends)
	}
}

// replaced says what is left of a pool that another one follows.
func (p Pool) replaced() string {
	by := "replaced by " + p.ReplacedBy
	switch left := p.Idle + p.Warming + p.Failed; {
	case left > 0:
		return fmt.Sprintf("%s: pods without a job go as that one's become Ready (%d left)", by, left)
	case p.Claimed > 0:
		return fmt.Sprintf("%s once its jobs are over (%d left)", by, p.Claimed)
	default:
		return by
	}
}

// Age is the time since an instant as kubectl writes it: "42s", "3m5s", "2d". A future instant, which another clock may
// have made, is no time ago.
func Age(since, now time.Time) string { return duration.HumanDuration(max(0, now.Sub(since))) }

// oneLine folds the server's words, which may have newlines, into the one line that a table has for them.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
