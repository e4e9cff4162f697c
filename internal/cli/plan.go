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

A running manager also remembers failures and pauses after them, which can't be seen from here: it may create less at once.`,
		Example: `  # What does a change of the file do?
  idlecount plan --config new.toml

  # Which pods would go, and why?
  idlecount plan --config new.toml -o json | jq -r '.pools[].delete[] | "\(.pod) \(.reason)"'`,
		Args: args(cobra.NoArgs),
		RunE: perform(o),
	}
	addConfig(cmd, &o.files)
	addOutput(cmd, &o.output, "wide", "json", "yaml")
	cmd.Flags().StringVar(&o.lease, "leader-elect-namespace", "",
		"namespace of the managers' lease (default: of the lease that the pools name)")
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
	previews, err := pool.Previews(ctx, pool.PreviewOptions{
		Client: cluster, Config: cfg, Lease: lease, Now: o.now(),
		Log: slog.New(slog.NewTextHandler(o.ErrOut, nil)),
	})
	if err != nil {
		return cluster.explain(err)
	}
	if err := o.print(previews); err != nil {
		return err
	}
	say(o.ErrOut, planSummary(previews))
	return nil
}

func (o *planOptions) print(previews []pool.Preview) error {
	list := struct {
		Pools []pool.Preview `json:"pools"`
	}{previews}
	switch o.output {
	case "json":
		return writeJSON(o.Out, list)
	case "yaml":
		return writeYAML(o.Out, list)
	default:
		return writePlan(o.Out, previews, o.output == "wide", o.now())
	}
}

func planSummary(previews []pool.Preview) string {
	creates, deletes := 0, 0
	for _, p := range previews {
		creates += p.Create
		deletes += len(p.Delete)
	}
	if creates+deletes == 0 {
		return count(len(previews), "pool") + ": nothing to create or delete"
	}
	return fmt.Sprintf("%s: %s to create, %d to delete", count(len(previews), "pool"), count(creates, "pod"), deletes)
}

func writePlan(w io.Writer, previews []pool.Preview, wide bool, now time.Time) error {
	if len(previews) == 0 {
		return nil
	}
	rows := [][]string{{"NAMESPACE", "POOL", "IMAGE", "POLICY", "WANT", "IDLE", "WARMING", "CLAIMED", "FAILED", "CREATE", "DELETE"}}
	if wide {
		rows[0] = append(rows[0], "RUNNER", "NEXT CHANGE")
	}
	for _, p := range previews {
		cells := []string{p.Namespace, p.Name, p.Image, p.Policy}
		for _, n := range []int{p.Want, p.Idle, p.Warming, p.Claimed, p.Failed, p.Create, len(p.Delete)} {
			cells = append(cells, strconv.Itoa(n))
		}
		if wide {
			next := ""
			if p.NextChange != nil {
				next = p.NextChange.In(now.Location()).Format("2006-01-02 15:04 MST")
			}
			cells = append(cells, p.Runner, next)
		}
		rows = append(rows, cells)
	}
	lines, err := align(rows)
	if err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString(lines[0] + "\n")
	for i, p := range previews {
		b.WriteString(lines[i+1] + "\n")
		for _, line := range remarks(p, wide) {
			b.WriteString("  -> " + line + "\n")
		}
	}
	_, err = io.WriteString(w, b.String())
	return err
}

// remarks are what a row doesn't show. wide names the pods.
func remarks(p pool.Preview, wide bool) []string {
	var lines []string
	add := func(holds bool, line string) {
		if holds {
			lines = append(lines, line)
		}
	}
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
