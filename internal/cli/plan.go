package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"idlecount.dev/idlecount/capacity"
	"idlecount.dev/idlecount/pool"
)

type planOptions struct {
	genericiooptions.IOStreams
	connection connection
	files      []string
	lease      string // namespace of the lease that was asked for; "" = find out
	output     string
	now        func() time.Time
}

func newPlan(streams genericiooptions.IOStreams) *cobra.Command {
	o := &planOptions{IOStreams: streams, connection: newConnection(), now: time.Now}
	o.connection.flags.Namespace = nil // the namespaces are those of the runners
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Show what a manager would create and delete now, without doing it",
		Long: `Show what a manager that is given this config.toml would create and delete now, by the decisions that it makes, from one
look at the cluster. Nothing is written, and it doesn't matter whether a manager runs: with the file that one has, the plan
is what it is about to do; with a changed file, what the change would do.

Where room is held for jobs (idle_strategy = "pause" or "buffer", idle_pause_count), a second table has these capacities: for how
many jobs room is wanted, the pause pods that there are, for how many jobs it would HOLD room, and the CHANGE that this is.

A running manager also remembers failures and pauses after them, which can't be seen from here: it may create less at once.`,
		Example: `  # What does a change of the file do?
  idlecount plan --config new.toml

  # Which pods would go, and why?
  idlecount plan --config new.toml -o json | jq -r '.pools[].delete[] | "\(.pod) \(.reason)"'

  # Does it hold less room for jobs anywhere?
  idlecount plan --config new.toml -o json | jq -r '.capacity[]? | select(.change < 0) | "\(.name) \(.change)"'`,
		Args: args(cobra.NoArgs),
		RunE: perform(o),
	}
	addConfig(cmd, &o.files)
	addOutput(cmd, &o.output, "wide", "json", "yaml")
	cmd.Flags().StringVar(&o.lease, "leader-elect-namespace", "",
		"namespace of the managers' lease (default: of the lease that the pools, or else the capacities, name)")
	o.connection.addFlags(cmd.Flags())
	return cmd
}

func (o *planOptions) complete(*cobra.Command, []string) error {
	o.files = configFiles(o.files)
	return nil
}

func (o *planOptions) validate(cmd *cobra.Command) error {
	return oneOf(cmd, "output", o.output, "wide", "json", "yaml")
}

func (o *planOptions) run(ctx context.Context) error {
	cfg, cluster, err := configured(o.files, o.connection, o.ErrOut)
	if err != nil {
		return err
	}
	lease := ""
	if o.lease != "" {
		lease = o.lease + "/" + pool.DefaultLeaseName
	}
	log, now := slog.New(warnings{to: o.ErrOut}), o.now()
	var list planList
	list.Pools, lease, err = pool.Previews(ctx, pool.PreviewOptions{Client: cluster, Config: cfg, Lease: lease, Now: now, Log: log})
	if err != nil {
		return cluster.explain(err)
	}
	// One manager keeps both, so what pools name is meant for capacities, too.
	list.Capacity, err = capacity.Previews(ctx, capacity.PreviewOptions{Client: cluster, Config: cfg, Lease: lease, Now: now, Log: log})
	if err != nil {
		return cluster.explain(err)
	}
	if err := o.print(list); err != nil {
		return err
	}
	say(o.ErrOut, list.summary())
	return nil
}

// planList is what `plan` prints as JSON and YAML.
type planList struct {
	Pools    []pool.Preview     `json:"pools"`
	Capacity []capacity.Preview `json:"capacity,omitempty"`
}

func (o *planOptions) print(list planList) error {
	switch o.output {
	case "json":
		return writeJSON(o.Out, list)
	case "yaml":
		return writeYAML(o.Out, list)
	default:
		return writePlans(o.Out, list, o.output == "wide", o.now())
	}
}

// summary is one line about all.
func (l planList) summary() string {
	creates, deletes := 0, 0
	for _, p := range l.Pools {
		creates += p.Create
		deletes += len(p.Delete)
	}
	text := fmt.Sprintf("%s: %s to create, %d to delete", count(len(l.Pools), "pool"), count(creates, "pod"), deletes)
	if creates+deletes == 0 {
		text = count(len(l.Pools), "pool") + ": nothing to create or delete"
	}
	switch {
	case len(l.Capacity) == 0:
		return text
	case len(l.Pools) == 0:
		return capacitySummary(l.Capacity)
	default:
		return text + "; " + capacitySummary(l.Capacity)
	}
}

// writePlans prints the table of pools, and that of capacities below it.
func writePlans(w io.Writer, list planList, wide bool, now time.Time) error {
	var b strings.Builder
	if err := writePlan(&b, list.Pools, wide, now); err != nil {
		return err
	}
	if len(list.Pools) > 0 && len(list.Capacity) > 0 {
		b.WriteString("\n")
	}
	if err := writeCapacityPlan(&b, list.Capacity, wide, now); err != nil {
		return err
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func writePlan(b *strings.Builder, previews []pool.Preview, wide bool, now time.Time) error {
	if len(previews) == 0 {
		return nil
	}
	columns := []string{"NAMESPACE", "POOL", "IMAGE", "POLICY", "WANT", "IDLE", "WARMING", "CLAIMED", "FAILED", "CREATE", "DELETE"}
	if wide {
		columns = append(columns, "RUNNER", "NEXT CHANGE")
	}
	t := newTable(columns...)
	for _, p := range previews {
		cells := []string{p.Namespace, p.Name, p.Image, p.Policy}
		for _, n := range []int{p.Want, p.Idle, p.Warming, p.Claimed, p.Failed, p.Create, len(p.Delete)} {
			cells = append(cells, strconv.Itoa(n))
		}
		if wide {
			cells = append(cells, p.Runner, changeAt(p.NextChange, now))
		}
		t.add(cells, remarks(p, wide)...)
	}
	return t.write(b)
}

// changeAt is when another policy comes into force, in the timezone of this machine.
func changeAt(next *time.Time, now time.Time) string {
	if next == nil {
		return ""
	}
	return next.In(now.Location()).Format("2006-01-02 15:04 MST")
}

// adder adds a line where something holds.
func adder(lines *[]string) func(holds bool, line string) {
	return func(holds bool, line string) {
		if holds {
			*lines = append(*lines, line)
		}
	}
}

// remarks are what a row doesn't show. wide names the pods.
func remarks(p pool.Preview, wide bool) []string {
	var lines []string
	add := adder(&lines)
	add(p.New, "the pool is new")
	add(p.TakenFrom != "", "the managers of lease "+p.TakenFrom+" have the pool; it would be taken from them")
	add(p.Paused, "paused; `idlecount resume` ends that")
	add(p.Drained, "drained; `idlecount resume` ends that")
	add(p.ReplacedBy != "", "replaced by "+p.ReplacedBy+": idle pods go as that one's become Ready")
	add(p.Policy == "", "no pool has this shape")
	add(p.Ends, "nothing is left of it: its ConfigMap goes")
	reasons := map[string][]string{}
	for _, d := range p.Delete {
		reasons[string(d.Reason)] = append(reasons[string(d.Reason)], d.Pod)
	}
	for _, d := range slices.CompactFunc(slices.SortedFunc(slices.Values(p.Delete), func(a, b pool.PreviewDeletion) int {
		return cmp.Compare(a.Reason, b.Reason)
	}), func(a, b pool.PreviewDeletion) bool { return a.Reason == b.Reason }) {
		pods := reasons[string(d.Reason)]
		line := fmt.Sprintf("deletes %s: %s", count(len(pods), "pod"), d.Reason)
		if wide {
			line += " (" + strings.Join(pods, ", ") + ")"
		}
		lines = append(lines, line)
	}
	add(p.Shortfall != "", oneLine(p.Shortfall))
	return lines
}
