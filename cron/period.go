package cron

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	robfig "github.com/robfig/cron/v3"
)

// Period is one cron expression in one timezone, made by ParsePeriod. The zero Period never matches.
type Period struct {
	spec     string
	location *time.Location
	// Bit n stands for the value n.
	minutes, hours, days, months, weekdays uint64
	// oneDayFieldIsEnough is the rule of unix cron where both day fields are restricted.
	oneDayFieldIsEnough bool
}

// field is one of the five, in the order in which they are written.
type field struct {
	name     string
	allowed  string
	min, max int
	names    []string // the name at index i stands for min+i
	option   robfig.ParseOption
	bits     func(*robfig.SpecSchedule) uint64
}

func fields() []field {
	return []field{
		{"minute", "0-59", 0, 59, nil, robfig.Minute, func(s *robfig.SpecSchedule) uint64 { return s.Minute }},
		{"hour", "0-23", 0, 23, nil, robfig.Hour, func(s *robfig.SpecSchedule) uint64 { return s.Hour }},
		{"day of month", "1-31", 1, 31, nil, robfig.Dom, func(s *robfig.SpecSchedule) uint64 { return s.Dom }},
		{"month", "1-12 or jan-dec", 1, 12, strings.Fields("jan feb mar apr may jun jul aug sep oct nov dec"),
			robfig.Month, func(s *robfig.SpecSchedule) uint64 { return s.Month }},
		{"day of week", "0-7 or mon-sun, Sunday is 0 and 7", 0, 7, strings.Fields("sun mon tue wed thu fri sat"),
			robfig.Dow, func(s *robfig.SpecSchedule) uint64 { return s.Dow }},
	}
}

const fieldNames = "minute, hour, day of month, month, day of week"

// starBit is how robfig marks a field that had a bare star.
const starBit = 1 << 63

// ParsePeriod reads a cron expression of five fields. The timezone is a name of the IANA database such as "Europe/Berlin";
// "" is the system's. The error says which field is wrong and what it may hold.
func ParsePeriod(spec, timezone string) (Period, error) {
	location, err := loadLocation(timezone)
	if err != nil {
		return Period{}, err
	}
	words, err := split(spec)
	if err != nil {
		return Period{}, err
	}
	var bits [5]uint64
	for i, f := range fields() {
		if bits[i], err = f.parse(words[i]); err != nil {
			return Period{}, fmt.Errorf("period %q: %s: %w", spec, f.name, err)
		}
	}
	p := Period{
		spec: spec, location: location,
		minutes: bits[0] &^ starBit, hours: bits[1] &^ starBit, days: bits[2] &^ starBit, months: bits[3] &^ starBit,
		weekdays:            bits[4] &^ starBit,
		oneDayFieldIsEnough: bits[2]&starBit == 0 && bits[4]&starBit == 0,
	}
	if !p.oneDayFieldIsEnough && !p.someDateExists() {
		return Period{}, fmt.Errorf("period %q never comes: no month that it names has such a day of month", spec)
	}
	return p, nil
}

// String is the expression as it was written.
func (p Period) String() string { return p.spec }

// Timezone is the name of the period's timezone; "Local" is the system's.
func (p Period) Timezone() string {
	if p.location == nil {
		return ""
	}
	return p.location.String()
}

// Contains says whether t lies in a minute that matches.
func (p Period) Contains(t time.Time) bool {
	if p.location == nil {
		return false
	}
	t = t.In(p.location)
	return p.containsDay(t) && has(p.hours, t.Hour()) && has(p.minutes, t.Minute())
}

// containsDay says whether the date that t shows matches; t is in the period's timezone.
func (p Period) containsDay(t time.Time) bool {
	if !has(p.months, int(t.Month())) {
		return false
	}
	day, weekday := has(p.days, t.Day()), has(p.weekdays, int(t.Weekday()))
	if p.oneDayFieldIsEnough {
		return day || weekday
	}
	return day && weekday
}

// isAlways says whether every minute matches.
func (p Period) isAlways() bool {
	everyDay := all(p.days, 1, 31) && all(p.weekdays, 0, 6) || p.oneDayFieldIsEnough && (all(p.days, 1, 31) || all(p.weekdays, 0, 6))
	return everyDay && all(p.minutes, 0, 59) && all(p.hours, 0, 23) && all(p.months, 1, 12)
}

func all(bits uint64, from, to int) bool {
	mask := uint64(1)<<(to+1) - uint64(1)<<from
	return bits&mask == mask
}

func has(bits uint64, value int) bool { return bits>>value&1 == 1 }

func (p Period) someDateExists() bool {
	longest := [...]int{0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31}
	for month := 1; month <= 12; month++ {
		if has(p.months, month) && p.days&(1<<(longest[month]+1)-1) != 0 {
			return true
		}
	}
	return false
}

// CheckTimezone says what is wrong with the name of a timezone.
func CheckTimezone(name string) error {
	_, err := loadLocation(name)
	return err
}

func loadLocation(name string) (*time.Location, error) {
	if name == "" {
		return time.Local, nil
	}
	location, err := time.LoadLocation(name)
	if err == nil {
		return location, nil
	}
	if _, err := time.LoadLocation("Europe/Berlin"); err != nil {
		return nil, fmt.Errorf("timezone %q can't be looked up: this system has no time zone database (install tzdata)", name)
	}
	return nil, fmt.Errorf("timezone %q is not known: it must be a name of the IANA time zone database such as "+
		`"Europe/Berlin" or "UTC"; without one the system's holds`, name)
}

// split finds the five fields and refuses the dialects of other crons, some of which robfig's parser would accept, or
// panic at, before it looks at fields.
func split(spec string) ([]string, error) {
	words := strings.Fields(spec)
	switch {
	case len(words) == 0:
		return nil, fmt.Errorf("period %q is empty: it needs five fields (%s)", spec, fieldNames)
	case strings.HasPrefix(words[0], "TZ=") || strings.HasPrefix(words[0], "CRON_TZ="):
		return nil, fmt.Errorf("period %q: the timezone has a key of its own, `timezone`; take %q away", spec, words[0])
	case strings.HasPrefix(words[0], "@"):
		return nil, fmt.Errorf("period %q: %s names a moment, a period is a range of time; write five fields (%s)",
			spec, words[0], fieldNames)
	case len(words) == 6 || len(words) == 7:
		return nil, fmt.Errorf("period %q has %d fields: seconds and years are not supported, the five are %s",
			spec, len(words), fieldNames)
	case len(words) == 1:
		return nil, fmt.Errorf("period %q has one field: it needs five (%s)", spec, fieldNames)
	case len(words) != 5:
		return nil, fmt.Errorf("period %q has %d fields: it needs five (%s)", spec, len(words), fieldNames)
	}
	return words, nil
}

// parse reads one field. The grammar is checked here, since robfig's parser is lax (`1,,2`, `*-5`, `+3`) and its messages
// don't name the field; what the values are, it says.
func (f field) parse(text string) (uint64, error) {
	var plain []string
	for element := range strings.SplitSeq(text, ",") {
		parts, err := f.element(element)
		if err != nil {
			return 0, err
		}
		plain = append(plain, parts...)
	}
	schedule, err := robfig.NewParser(f.option).Parse(strings.Join(plain, ","))
	if err != nil {
		return 0, err
	}
	spec, ok := schedule.(*robfig.SpecSchedule)
	if !ok {
		return 0, fmt.Errorf("%q is not an expression of values", text)
	}
	return f.bits(spec), nil
}

// element checks one element of a list and returns it with names as numbers and without the 7 that robfig doesn't know.
func (f field) element(text string) ([]string, error) {
	values, step, hasStep := strings.Cut(text, "/")
	low, high, isRange := strings.Cut(values, "-")
	stepBy := 1
	if hasStep {
		var err error
		if stepBy, err = strconv.Atoi(step); err != nil || stepBy < 1 || strings.HasPrefix(step, "+") {
			return nil, fmt.Errorf("%q: the step after / must be a number from 1 up", text)
		}
		if stepBy > f.max-f.min {
			return nil, fmt.Errorf("%q: the step is larger than the field (%s)", text, f.allowed)
		}
	}
	if values == "*" {
		return []string{text}, nil
	}
	from, err := f.value(low, false)
	if err != nil {
		return nil, err
	}
	to := from
	switch {
	case isRange:
		if to, err = f.value(high, true); err != nil {
			return nil, err
		}
	case hasStep:
		to = f.max
		if f.isWeekday() {
			to = max(from, 6) // Sunday is the first day here, and not the last as well
		}
	}
	if from > to {
		return nil, fmt.Errorf("%q: the range runs backwards, write it as two (allowed: %s)", text, f.allowed)
	}
	var list []string
	for v := from; v <= to; v += stepBy {
		n := v
		if f.isWeekday() {
			n = v % 7
		}
		list = append(list, strconv.Itoa(n))
	}
	return list, nil
}

func (f field) isWeekday() bool { return f.option == robfig.Dow }

// value reads a number or a name. At the end of a range, sun is the 7, so that `fri-sun` is what it looks like.
func (f field) value(text string, end bool) (int, error) {
	if i := slices.Index(f.names, strings.ToLower(text)); i >= 0 {
		if f.isWeekday() && end && i == 0 {
			return 7, nil
		}
		return f.min + i, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < f.min || n > f.max || strings.ContainsAny(text, "+-") {
		return 0, fmt.Errorf("%q is not allowed here (allowed: %s)", text, f.allowed)
	}
	return n, nil
}
