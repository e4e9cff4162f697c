package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	capacitystatus "idlecount.dev/idlecount/capacity/status"
	"idlecount.dev/idlecount/pool/status"
)

// writeCapacity prints a table of the room that is held, each row with a line below it where something is to be explained.
func writeCapacity(b *strings.Builder, list []capacitystatus.Row, o tableOptions) error {
	columns := []string{"CAPACITY", "STRATEGY", "POLICY", "WANT", "HELD", "PENDING", "JOBS", "SCHEDULED IN"}
	if o.wide || o.namespaces {
		columns = slices.Concat([]string{"NAMESPACE"}, columns)
	}
	if o.wide {
		columns = append(columns, "RUNNER", "IMAGE", "NEXT CHANGE")
	}
	t := newTable(columns...)
	for _, r := range list {
		t.add(capacityCells(r, o), o.reason(r.Reason(o.now)))
	}
	return t.write(b)
}

func capacityCells(r capacitystatus.Row, o tableOptions) []string {
	waited := ""
	if r.ScheduledMedian != nil {
		waited = fmt.Sprintf("%.0fs (most %.0fs)", *r.ScheduledMedian, *r.ScheduledMost)
	}
	cells := []string{
		r.Name, r.Strategy, r.Policy, strconv.Itoa(r.Want), strconv.Itoa(r.Held), strconv.Itoa(r.Pending), strconv.Itoa(r.Jobs), waited,
	}
	if o.wide || o.namespaces {
		cells = slices.Concat([]string{r.Namespace}, cells)
	}
	if o.wide {
		next := ""
		if r.NextChange != nil {
			next = "in " + status.Age(o.now, *r.NextChange)
		}
		cells = append(cells, r.Runner, r.Image, next)
	}
	return cells
}
