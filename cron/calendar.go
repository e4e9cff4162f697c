package cron

import "time"

// Calendar is a schedule that is asked again and again. What it says stays right until the next change, and to find out that
// there is none takes long, so both are remembered, a day at most. It is for one goroutine.
type Calendar struct {
	Schedule Schedule

	asked   time.Time // when what follows was found out; zero = never
	decided Decision
	change  time.Time // zero = never
}

// At is what holds now.
func (c *Calendar) At(now time.Time) Decision {
	c.look(now)
	return c.decided
}

// NextChange is when that changes; zero = never.
func (c *Calendar) NextChange(now time.Time) time.Time {
	c.look(now)
	return c.change
}

func (c *Calendar) look(now time.Time) {
	passed := !c.change.IsZero() && !now.Before(c.change)
	if c.asked.IsZero() || passed || now.Before(c.asked) || now.Sub(c.asked) > 24*time.Hour {
		c.change, _ = c.Schedule.NextChange(now)
		c.asked, c.decided = now, c.Schedule.At(now)
	}
}
