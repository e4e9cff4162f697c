package leases

import (
	"fmt"
	"time"
)

const (
	// quietFor is how long something has to lie idle before it is taken back from a lease that can't be read; doubled each time.
	quietFor   = 2 * time.Minute
	maxTakings = 5 // doublings, at most
	// takeOverPause is the time that a manager which loses something to another one has to notice.
	takeOverPause = time.Second
)

// Contest is what a manager remembers, in a term, of something whose anchor names the lease of its managers: whether that
// was its own, and how it has dealt with another one. The zero value is that of a term that begins.
type Contest struct {
	owned      bool      // the watch has shown the anchor as ours in this term
	takenUntil time.Time // when to begin with what was another manager's
	leftTo     string    // the lease to whose managers it was left; "" = none
	takings    int       // how often it was taken back in this term
	quietAt    string    // the anchor's version while its managers do nothing that is due …
	quietSince time.Time // … and since when; zero = nothing is due
}

// Owned notes that the watch shows the anchor with this manager's lease.
func (c *Contest) Owned() { c.owned = true }

// Settled notes that this manager keeps it now.
func (c *Contest) Settled() { c.leftTo = "" }

// Waits says until when this manager leaves alone what it has taken: the other one may need a moment to see that, and the
// watch to show it.
func (c *Contest) Waits(now time.Time) (until time.Time, waits bool) {
	return c.takenUntil, now.Before(c.takenUntil)
}

// Takes says whether it may be taken from the managers of a lease: where nobody holds that. Where that can't be found out a
// manager that begins takes it, so that nothing is lost with its managers' namespace; one that has had it in this term takes
// it back only when it has lain idle for a while.
func (c *Contest) Takes(r Rival, quiet time.Duration) bool {
	switch r.State {
	case Lapsed, Absent:
		return true
	case Unknown:
		return !c.owned || quiet >= quietFor<<min(c.takings, maxTakings)
	default:
		return false
	}
}

// Took notes that it was taken.
func (c *Contest) Took(now time.Time) {
	if c.owned {
		c.takings++
	}
	c.takenUntil, c.quietSince = now.Add(takeOverPause), time.Time{}
}

// Leaves notes to the managers of which lease it is left, and says whether that is news.
func (c *Contest) Leaves(lease string) bool {
	news := c.leftTo != lease
	c.leftTo = lease
	return news
}

// Quiet is for how long nothing has been done by its managers though something is due, and the anchor stays at a version:
// the only sign of managers whose lease can't be read.
func (c *Contest) Quiet(now time.Time, version string, due bool) time.Duration {
	if !due || c.quietAt != version {
		c.quietAt, c.quietSince = version, time.Time{}
	}
	if due && c.quietSince.IsZero() {
		c.quietSince = now
	}
	if c.quietSince.IsZero() {
		return 0
	}
	return now.Sub(c.quietSince)
}

// Taken is the reason, in metrics, why something isn't kept that the managers of another lease have. Only metrics have it:
// the status in the anchor is theirs.
const Taken = "Taken"

// LeftTo is what is said of something that is left to the managers of another lease.
func LeftTo(what, lease, runner string) string {
	return fmt.Sprintf("the managers of lease %s have the %s; only one installation may have the runner %s: "+
		"stop the other one, or take the runner out of its configuration", lease, what, runner)
}
