package cli

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/cron"
)

// timetable is what a runner wants in a span of time, for images that it wants the same of.
type timetable struct {
	Runner    string   `json:"runner"`
	ID        string   `json:"id"` // short token of the runner
	Namespace string   `json:"namespace"`
	Strategy  string   `json:"strategy"` // "pods": idle pods; "pause", "buffer": room for jobs
	Images    []string `json:"images"`   // "" = any that has no room of its own
	LeadTime  string   `json:"lead_time,omitempty"`
	Slots     []slot   `json:"slots"` // the first is what holds at the beginning
	Notes     []note   `json:"notes"`

	location *time.Location // in which it is to be read
}

// slot is a time in which nothing changes.
type slot struct {
	From             time.Time  `json:"from"`
	Policy           string     `json:"policy"`
	Period           string     `json:"period,omitempty"`
	IdleCount        int        `json:"idle_count"`
	IdleTime         string     `json:"idle_time"`
	ScaleFactor      float64    `json:"scale_factor,omitempty"`
	ScaleFactorLimit int        `json:"scale_factor_limit,omitempty"`
	Ahead            string     `json:"ahead,omitempty"`  // the policy whose larger count holds already
	Begins           *time.Time `json:"begins,omitempty"` // when that policy comes into force
}

// note is something about a policy that the slots don't show.
type note struct {
	Kind    string `json:"kind"`
	Policy  string `json:"policy"`
	Message string `json:"message"`
}

// The kinds of notes.
const (
	noteClock  = "clock"  // the clocks are changed within a period
	noteHidden = "hidden" // a policy that comes later in the file holds instead
	noteAbsent = "absent" // no period of the policy comes within the span
)

// mostSlots bounds a timetable: a policy may change every minute.
const mostSlots = 10_000

// timetables are those of a runner, one for each set of images that it wants the same of.
func timetables(r config.Runner, from, until time.Time) ([]timetable, error) {
	var tables []timetable
	var known []kept
	all, err := keptFor(r)
	if err != nil {
		return nil, err
	}
	for _, k := range all {
		s := k.schedule
		if i := slices.IndexFunc(known, k.alike); i >= 0 {
			tables[i].Images = append(tables[i].Images, k.image)
			continue
		}
		t := timetable{
			Runner: r.Name, ID: r.ShortToken(), Namespace: r.Kubernetes.Namespace, Strategy: k.strategy, Images: []string{k.image},
			Notes: []note{}, location: locationOf(s),
		}
		if s.Lead > 0 {
			t.LeadTime = s.Lead.String()
		}
		t.Slots = slotsOf(s, from, until)
		t.Notes = append(t.Notes, notesOf(s, from, until, t.location)...)
		known, tables = append(known, k), append(tables, t)
	}
	return tables, nil
}

// kept is what is kept for jobs with an image: idle pods, or room.
type kept struct {
	strategy string // as in timetable
	image    string
	schedule cron.Schedule
}

// alike says whether a table can stand for both.
func (k kept) alike(other kept) bool {
	return k.strategy == other.strategy && reflect.DeepEqual(k.schedule, other.schedule)
}

// keptFor is all that is kept for a runner's jobs.
func keptFor(r config.Runner) ([]kept, error) {
	var all []kept
	if r.KeepsPods() {
		for _, image := range r.IdleImages() {
			s, err := r.ScheduleFor(image)
			if err != nil {
				return nil, err
			}
			all = append(all, kept{config.StrategyPods, image, s})
		}
	}
	if r.KeepsCapacity() {
		strategy := config.StrategyPause // also beside idle pods
		if r.Kubernetes.IdleStrategy == config.StrategyBuffer {
			strategy = config.StrategyBuffer
		}
		for _, image := range r.CapacityImages() {
			s, err := r.CapacitySchedule(image)
			if err != nil {
				return nil, err
			}
			all = append(all, kept{strategy, image, s})
		}
	}
	return all, nil
}

// locationOf is the timezone of a schedule's periods, where all have the same, else that of the system.
func locationOf(s cron.Schedule) *time.Location {
	var names []string
	for _, policy := range s.Policies {
		for _, period := range policy.Periods {
			names = append(names, period.Timezone())
		}
	}
	if names = slices.Compact(names); len(names) == 1 {
		if location, err := time.LoadLocation(names[0]); err == nil {
			return location
		}
	}
	return time.Local
}

func slotsOf(s cron.Schedule, from, until time.Time) []slot {
	slots := []slot{slotAt(s, from)}
	for t, ok := s.NextChange(from); ok && t.Before(until) && len(slots) < mostSlots; t, ok = s.NextChange(t) {
		slots = append(slots, slotAt(s, t))
	}
	return slots
}

func slotAt(s cron.Schedule, t time.Time) slot {
	d := s.At(t)
	at := slot{
		From: t.UTC(), Policy: d.Policy, Period: d.Period, IdleCount: d.IdleCount, IdleTime: d.IdleTime.String(),
		ScaleFactor: d.ScaleFactor, ScaleFactorLimit: d.ScaleFactorLimit, Ahead: d.Ahead,
	}
	if d.Ahead != "" {
		at.Begins = &d.Begins
	}
	return at
}

// span is a time in which a policy matches, whether or not it holds.
type span struct{ from, until time.Time }

func (s span) text(in *time.Location) string {
	return moment(s.from, in) + " to " + moment(s.until, in)
}

// moment writes a time for people: with the day of the week, and the zone, which may change within a timetable.
func moment(t time.Time, in *time.Location) string {
	return t.In(in).Format("Mon 2006-01-02 15:04 MST")
}

// spansOf are the times in which a policy matches; the last may end with the span that is looked at.
func spansOf(p cron.Policy, from, until time.Time) []span {
	alone := cron.Schedule{Policies: []cron.Policy{p}}
	var spans []span
	for t := from; t.Before(until) && len(spans) < mostSlots; {
		next, ok := alone.NextChange(t)
		if !ok || next.After(until) {
			next = until
		}
		if alone.At(t).Policy == p.Name {
			spans = append(spans, span{t, next})
		}
		t = next
	}
	return spans
}

// both are the times that are in a span of each.
func both(a, b []span) []span {
	var common []span
	for len(a) > 0 && len(b) > 0 {
		from, until := a[0].from, a[0].until
		if b[0].from.After(from) {
			from = b[0].from
		}
		if b[0].until.Before(until) {
			until = b[0].until
		}
		if from.Before(until) {
			common = append(common, span{from, until})
		}
		if a[0].until.Before(b[0].until) {
			a = a[1:]
		} else {
			b = b[1:]
		}
	}
	return common
}

func total(spans []span) time.Duration {
	var sum time.Duration
	for _, s := range spans {
		sum += s.until.Sub(s.from)
	}
	return sum
}

// notesOf explains policies that don't hold although, or when, one might think so.
func notesOf(s cron.Schedule, from, until time.Time, in *time.Location) []note {
	var notes []note
	spans := make([][]span, len(s.Policies))
	for i, p := range s.Policies {
		spans[i] = spansOf(p, from, until)
		if len(spans[i]) == 0 {
			notes = append(notes, absent(p, until, in))
		}
	}
	for i, p := range s.Policies {
		for j := i + 1; j < len(s.Policies); j++ {
			hidden := both(spans[i], spans[j])
			if len(hidden) == 0 {
				continue
			}
			text := fmt.Sprintf("%s, which comes later in the file, holds instead of %s", s.Policies[j].Name, p.Name)
			if total(hidden) == total(spans[i]) {
				text += " all the time"
			} else {
				text += ": " + hidden[0].text(in)
				if n := len(hidden) - 1; n > 0 {
					text += fmt.Sprintf(", and %d more", n)
				}
			}
			notes = append(notes, note{noteHidden, p.Name, text})
		}
	}
	for _, p := range s.Policies {
		notes = append(notes, clockNotes(p, from, until)...)
	}
	return notes
}

func absent(p cron.Policy, until time.Time, in *time.Location) note {
	text := p.Name + " doesn't come in this time"
	alone := cron.Schedule{Policies: []cron.Policy{p}}
	if alone.At(until).Policy == p.Name {
		text += "; it begins at its end"
	} else if next, ok := alone.NextChange(until); ok {
		text += "; it comes next on " + moment(next, in)
	}
	return note{noteAbsent, p.Name, text}
}

// clockNotes says what a change of the clocks does to the periods of a policy.
func clockNotes(p cron.Policy, from, until time.Time) []note {
	var notes []note
	for _, period := range p.Periods {
		location, err := time.LoadLocation(period.Timezone())
		if err != nil {
			continue // it was loaded a moment ago
		}
		for _, change := range clockChanges(location, from, until) {
			if effect := change.effect(period); effect != "" {
				notes = append(notes, note{noteClock, p.Name, fmt.Sprintf("the clocks of %s go %s on %s: the period %q of %s %s",
					period.Timezone(), change.direction(), moment(change.at, change.old), period, p.Name, effect)})
			}
		}
	}
	return notes
}

// clockChange is a moment at which clocks are put forward (by more than 0) or back.
type clockChange struct {
	at  time.Time // the first moment of the new offset, in the timezone
	by  time.Duration
	old *time.Location // the clock that isn't put
}

func clockChanges(location *time.Location, from, until time.Time) []clockChange {
	var changes []clockChange
	for t := from.In(location); ; {
		_, end := t.ZoneBounds()
		if end.IsZero() || !end.Before(until) {
			return changes
		}
		name, before := t.Zone()
		_, after := end.Zone()
		if by := time.Duration(after-before) * time.Second; by != 0 {
			changes = append(changes, clockChange{end, by, time.FixedZone(name, before)})
		}
		t = end
	}
}

func (c clockChange) direction() string {
	if c.by > 0 {
		return "forward by " + short(c.by)
	}
	return "back by " + short(-c.by)
}

// effect says what the change does to a period; "" where it does nothing.
func (c clockChange) effect(p cron.Period) string {
	before, after := p.Contains(c.at.Add(-1)), p.Contains(c.at)
	if c.by > 0 {
		switch {
		case !matchesWall(p, c.at.In(c.old), c.by):
			return ""
		case before || after:
			return "is up to " + short(c.by) + " shorter on that day"
		default:
			return "doesn't happen on that day"
		}
	}
	switch {
	case before && after:
		return "is up to " + short(-c.by) + " longer on that day"
	case matchesWall(p, c.at, -c.by):
		return "happens twice on that day"
	default:
		return ""
	}
}

// matchesWall says whether a period matches any minute that a clock on the wall would show from what it shows at t on. It
// may be that no such minute exists, so they are looked up where every minute does.
func matchesWall(p cron.Period, t time.Time, lasts time.Duration) bool {
	everywhere, err := cron.ParsePeriod(p.String(), "UTC")
	if err != nil {
		return false // it was parsed before
	}
	wall := time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), 0, 0, time.UTC)
	for n := time.Duration(0); n < lasts; n += time.Minute {
		if everywhere.Contains(wall.Add(n)) {
			return true
		}
	}
	return false
}

// short writes a duration as people do: "1h", "30m", "1h30m".
func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
