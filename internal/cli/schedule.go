package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"idlecount.dev/idlecount/config"
)

type scheduleOptions struct {
	genericiooptions.IOStreams
	files  []string
	at     string
	days   int
	output string
	now    func() time.Time

	runners []string // names or short tokens; none = all
	from    time.Time
}

func newSchedule(streams genericiooptions.IOStreams) *cobra.Command {
	o := &scheduleOptions{IOStreams: streams, now: time.Now}
	cmd := &cobra.Command{
		Use:   "schedule [RUNNER...]",
		Short: "Show which policy holds, and when that changes",
		Long: `Show how many idle pods a config.toml wants now, and at each change in the days to come, for each runner and image;
images of which a runner wants the same share a table. Where room for jobs is held (idle_strategy = "pause" or "buffer",
idle_pause_count), a table of its own says for how many. Below it stand what the changes don't show: policies that another
one hides, that don't come in this time, and periods that a change of the clocks makes shorter or longer.

Times are in the timezone of the policies, where all of a runner's have the same, else in that of this machine.
The files are all that is read: no cluster is asked.`,
		Example: `  # What holds now, and in the coming week
  idlecount schedule --config config.toml

  # One runner, around the change of the clocks
  idlecount schedule ci --at "2026-10-24 12:00" --days 3

  # How many idle pods are wanted on Monday morning?
  idlecount schedule --at 2026-03-02T08:30:00+01:00 --days 1 -o json | jq '[.schedules[] | select(.strategy == "pods") | .slots[0].idle_count * (.images | length)] | add'`,
		Args: args(cobra.ArbitraryArgs),
		RunE: perform(o),
	}
	addConfig(cmd, &o.files)
	addOutput(cmd, &o.output, "json", "yaml")
	cmd.Flags().StringVar(&o.at, "at", "", `begin at this time instead of now: RFC 3339, or "2006-01-02 15:04" on the clock of this machine`)
	cmd.Flags().IntVar(&o.days, "days", 7, "how many days to look ahead, up to 366")
	return cmd
}

func (o *scheduleOptions) complete(cmd *cobra.Command, given []string) error {
	o.files, o.runners, o.from = configFiles(o.files), given, o.now()
	if o.at != "" {
		var err error
		if o.from, err = parseTime(o.at); err != nil {
			return usage(cmd, "--at %q: %w", o.at, err)
		}
	}
	return nil
}

// parseTime reads a time as people may write it.
func parseTime(text string) (time.Time, error) {
	for _, layout := range []string{time.RFC3339, "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02T15:04", time.DateOnly} {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, errors.New(`want a time such as 2026-03-02T08:30:00+01:00, "2026-03-02 08:30" or 2026-03-02`)
}

func (o *scheduleOptions) validate(cmd *cobra.Command) error {
	if o.days < 1 || o.days > 366 {
		return usage(cmd, "--days %d: want a number from 1 to 366", o.days)
	}
	return oneOf(cmd, "output", o.output, "json", "yaml")
}

// scheduleList is what `schedule` prints as JSON and YAML.
type scheduleList struct {
	From      time.Time   `json:"from"`
	Until     time.Time   `json:"until"`
	Schedules []timetable `json:"schedules"`
}

func (o *scheduleOptions) run(context.Context) error {
	cfg, err := loadConfig(o.files, o.ErrOut)
	if err != nil {
		return err
	}
	until := o.from.AddDate(0, 0, o.days)
	list := scheduleList{From: o.from.UTC(), Until: until.UTC(), Schedules: []timetable{}}
	for _, r := range cfg.Runners {
		if !r.Managed() || !o.asked(r) {
			continue
		}
		tables, err := timetables(r, o.from, until)
		if err != nil {
			return err
		}
		list.Schedules = append(list.Schedules, tables...)
	}
	switch o.output {
	case "json":
		err = writeJSON(o.Out, list)
	case "yaml":
		err = writeYAML(o.Out, list)
	default:
		err = writeTimetables(o.Out, list, o.at == "")
	}
	if err != nil {
		return err
	}
	if len(list.Schedules) == 0 && len(o.runners) == 0 {
		say(o.ErrOut, "No runner is managed by idlecount: none has a [runners.kubernetes] table and executor = \"custom\", or an idle_strategy for its own executor.")
	}
	return o.missing(cfg)
}

func (o *scheduleOptions) asked(r config.Runner) bool {
	return len(o.runners) == 0 || slices.Contains(o.runners, r.Name) || slices.Contains(o.runners, r.ShortToken())
}

func (o *scheduleOptions) missing(cfg *config.Config) error {
	var errs []error
	for _, name := range o.runners {
		known := func(r config.Runner) bool { return r.Managed() && (r.Name == name || r.ShortToken() == name) }
		if !slices.ContainsFunc(cfg.Runners, known) {
			errs = append(errs, fmt.Errorf("no runner %q is managed by idlecount; `idlecount schedule -o json | jq -r '.schedules[].runner'` lists those that are", name))
		}
	}
	return errors.Join(errs...)
}

// mostRows bounds a table for people.
const mostRows = 50

// writeTimetables prints a block for each timetable. now says that they begin now, rather than at a time that was given.
func writeTimetables(w io.Writer, list scheduleList, now bool) error {
	var b strings.Builder
	for i, t := range list.Schedules {
		if i > 0 {
			b.WriteString("\n")
		}
		if err := t.write(&b, now); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (t timetable) write(b *strings.Builder, now bool) error {
	fmt.Fprintf(b, "%s (%s) in namespace %s%s\n", cmp.Or(t.Runner, "a runner without a name"), t.ID, t.Namespace, t.subject())
	wanted := "IDLE"
	if t.Strategy != config.StrategyPods {
		wanted = "ROOM"
	}
	rows := [][]string{{"FROM", "POLICY", wanted, "IDLE TIME", "SCALE FACTOR", "PERIOD"}}
	days := t.days()
	after := map[int]string{} // what stands below a row
	for _, d := range days {
		for _, s := range d.slots {
			from := moment(s.From, t.location)
			if len(rows) == 1 && now {
				from = "now"
			}
			rows = append(rows, append([]string{from}, t.cells(s)...))
		}
		if d.alike > 0 {
			after[len(rows)-1] = d.fold()
		}
	}
	lines, err := align(rows)
	if err != nil {
		return err
	}
	for i, line := range lines[:min(len(lines), mostRows+1)] {
		b.WriteString("  " + strings.TrimRight(line, " ") + "\n" + after[i])
	}
	if more := len(lines) - 1 - mostRows; more > 0 {
		fmt.Fprintf(b, "  … and %s; -o json has all\n", count(more, "more change"))
	}
	for _, n := range t.Notes {
		b.WriteString("  -> " + n.Message + "\n")
	}
	return nil
}

// subject is what a timetable is about.
func (t timetable) subject() string {
	if t.Strategy == config.StrategyPods {
		return ": " + strings.Join(t.Images, ", ")
	}
	images := slices.Clone(t.Images)
	for i := range images {
		images[i] = cmp.Or(images[i], "any other image")
	}
	return fmt.Sprintf(", room for jobs (%s): %s", t.Strategy, strings.Join(images, ", "))
}

// day is the changes of a day, and how many days after it have the same.
type day struct {
	date  time.Time // its midnight, as if in UTC
	slots []slot
	alike int
}

// days folds days that are alike and follow each other: most schedules say the same from Monday to Friday. What holds at
// the beginning is a day of its own.
func (t timetable) days() []day {
	days := []day{{slots: t.Slots[:1]}}
	for _, s := range t.Slots[1:] {
		at := s.From.In(t.location)
		date := time.Date(at.Year(), at.Month(), at.Day(), 0, 0, 0, 0, time.UTC)
		if last := len(days) - 1; days[last].date.Equal(date) {
			days[last].slots = append(days[last].slots, s)
		} else {
			days = append(days, day{date: date, slots: []slot{s}})
		}
	}
	folded := days[:1]
	for _, d := range days[1:] {
		last := &folded[len(folded)-1]
		if t.text(*last) == t.text(d) && last.date.AddDate(0, 0, last.alike+1).Equal(d.date) {
			last.alike++
			continue
		}
		folded = append(folded, d)
	}
	return folded
}

// text is what a day is compared by.
func (t timetable) text(d day) string {
	var b strings.Builder
	for _, s := range d.slots {
		fmt.Fprintln(&b, s.From.In(t.location).Format("15:04 MST"), t.cells(s))
	}
	return b.String()
}

// fold is the line that stands for the days after a day.
func (d day) fold() string {
	const layout = "Mon 2006-01-02"
	first, last := d.date.AddDate(0, 0, 1), d.date.AddDate(0, 0, d.alike)
	if d.alike == 1 {
		return fmt.Sprintf("  %s: as on the day before\n", first.Format(layout))
	}
	return fmt.Sprintf("  %s to %s: as on %s\n", first.Format(layout), last.Format(layout), d.date.Format("Mon"))
}

func (t timetable) cells(s slot) []string {
	policy, idleTime, factor := s.Policy, "never", ""
	if s.Ahead != "" {
		policy = s.Ahead + " (ahead of " + s.Begins.In(t.location).Format("15:04") + ")"
	}
	if d, err := time.ParseDuration(s.IdleTime); err == nil && d > 0 {
		idleTime = short(d)
	}
	if s.ScaleFactor > 0 {
		factor = strconv.FormatFloat(s.ScaleFactor, 'g', -1, 64)
		if s.ScaleFactorLimit > 0 {
			factor += " up to " + strconv.Itoa(s.ScaleFactorLimit)
		}
	}
	return []string{policy, strconv.Itoa(s.IdleCount), idleTime, factor, s.Period}
}
