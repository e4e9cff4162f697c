package cli

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/pool/status"
)

type tableOptions struct {
	wide       bool // more columns
	namespaces bool // a NAMESPACE column
	pods       bool // a second table
	now        time.Time
}

// writeTables prints pools, each with a line below it where something is to be explained, and their pods if asked for.
func writeTables(w io.Writer, list statusList, o tableOptions) error {
	var b strings.Builder
	if len(list.Pools) > 0 {
		if err := writePools(&b, list, o); err != nil {
			return err
		}
	}
	if len(list.Capacity) > 0 {
		if len(list.Pools) > 0 {
			b.WriteString("\n")
		}
		if err := writeCapacity(&b, list.Capacity, o); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func writePools(b *strings.Builder, list statusList, o tableOptions) error {
	t := newTable(poolColumns(o)...)
	for _, p := range list.Pools {
		t.add(poolCells(p, o), o.reason(p.Reason(managerOf(p, list.Managers), o.now)))
	}
	if err := t.write(b); err != nil {
		return err
	}
	if o.pods {
		return writePods(b, list.Pools, o)
	}
	return nil
}

// maxReason is how much of a reason a table shows, in characters: an API server may print whole objects.
const maxReason = 300

// reason is what stands below a row.
func (o tableOptions) reason(text string) string {
	if o.wide {
		return text
	}
	return shorten(text)
}

func shorten(reason string) string {
	runes := []rune(reason)
	if len(runes) <= maxReason {
		return reason
	}
	return string(runes[:maxReason]) + "… (all of it with -o wide)"
}

func poolColumns(o tableOptions) []string {
	columns := []string{"POOL", "IMAGE", "POLICY", "WANT", "IDLE", "WARMING", "CLAIMED", "FAILED", "OLDEST"}
	if o.wide || o.namespaces {
		columns = slices.Concat([]string{"NAMESPACE"}, columns)
	}
	if o.wide {
		columns = append(columns, "RUNNER", "SHAPE", "NEXT CHANGE", "IDLE TIME")
	}
	return columns
}

func poolCells(p status.Pool, o tableOptions) []string {
	want := strconv.Itoa(p.Want)
	if !p.Managed || p.Unreadable != "" {
		want = ""
	}
	cells := []string{
		p.Name, p.Image, p.Policy, want,
		strconv.Itoa(p.Idle), strconv.Itoa(p.Warming), strconv.Itoa(p.Claimed), strconv.Itoa(p.Failed),
		ago(p.OldestIdle, o.now),
	}
	if o.wide || o.namespaces {
		cells = slices.Concat([]string{p.Namespace}, cells)
	}
	if o.wide {
		next := ""
		if p.NextChange != nil {
			next = "in " + status.Age(o.now, *p.NextChange)
		}
		cells = append(cells, p.Runner, p.Shape, next, p.IdleTime)
	}
	return cells
}

func writePods(w io.Writer, pools []status.Pool, o tableOptions) error {
	columns := []string{"POOL", "POD", "PHASE", "FOR", "AGE", "NODE", "JOB", "START"}
	if o.wide || o.namespaces {
		columns = slices.Concat([]string{"NAMESPACE"}, columns)
	}
	rows := [][]string{columns}
	for _, p := range pools {
		for _, pod := range p.Pods {
			cells := []string{
				p.Name, pod.Name, string(pod.Phase), ago(inPhaseSince(pod), o.now), ago(&pod.Created, o.now), pod.Node, pod.Job, pod.Warmth,
			}
			if o.wide || o.namespaces {
				cells = slices.Concat([]string{p.Namespace}, cells)
			}
			rows = append(rows, cells)
		}
	}
	if len(rows) == 1 {
		return nil
	}
	lines, err := align(rows)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "\n%s\n", strings.Join(lines, "\n"))
	return err
}

// inPhaseSince is when a pod came into its phase, where that is known.
func inPhaseSince(pod status.Pod) *time.Time {
	switch pod.Phase {
	case factory.Warming:
		return &pod.Created
	case factory.Idle:
		return pod.IdleSince
	case factory.Claimed:
		return pod.ClaimedAt
	default:
		return nil
	}
}

func managerOf(p status.Pool, managers []status.Manager) *status.Manager {
	if i := slices.IndexFunc(managers, func(m status.Manager) bool { return m.Lease == p.Lease }); i >= 0 {
		return &managers[i]
	}
	return nil
}

func ago(at *time.Time, now time.Time) string {
	if at == nil {
		return ""
	}
	return status.Age(*at, now)
}
