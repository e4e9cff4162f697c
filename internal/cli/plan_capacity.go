package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"idlecount.dev/idlecount/capacity"
)

// capacitySummary is the part of a plan's summary that is about room for jobs.
func capacitySummary(previews []capacity.Preview) string {
	more, less, rolls := 0, 0, 0
	for _, p := range previews {
		more += max(0, p.Change)
		less += max(0, -p.Change)
		if p.RollsOut {
			rolls++
		}
	}
	var parts []string
	add := adder(&parts)
	add(more > 0, "room for "+count(more, "more job"))
	add(less > 0, fmt.Sprintf("room for %d fewer", less))
	add(rolls > 0, fmt.Sprintf("%d to roll out", rolls))
	add(len(parts) == 0, "nothing to change")
	return count(len(previews), "capacity") + ": " + strings.Join(parts, ", ")
}

func writeCapacityPlan(b *strings.Builder, previews []capacity.Preview, wide bool, now time.Time) error {
	if len(previews) == 0 {
		return nil
	}
	columns := []string{"NAMESPACE", "CAPACITY", "STRATEGY", "POLICY", "WANT", "HELD", "PENDING", "JOBS", "HOLD", "CHANGE"}
	if wide {
		columns = append(columns, "RUNNER", "IMAGE", "NEXT CHANGE")
	}
	t := newTable(columns...)
	for _, p := range previews {
		cells := []string{p.Namespace, p.Name, p.Strategy, p.Policy}
		for _, n := range []int{p.Want, p.Held, p.Pending, p.Jobs, p.Hold} {
			cells = append(cells, strconv.Itoa(n))
		}
		change := fmt.Sprintf("%+d", p.Change)
		if p.Change == 0 {
			change = "0"
		}
		cells = append(cells, change)
		if wide {
			cells = append(cells, p.Runner, p.Image, changeAt(p.NextChange, now))
		}
		t.add(cells, capacityRemarks(p, now)...)
	}
	return t.write(b)
}

// capacityRemarks are what a row doesn't show.
func capacityRemarks(p capacity.Preview, now time.Time) []string {
	var lines []string
	add := adder(&lines)
	add(p.New, "the capacity is new")
	add(p.TakenFrom != "", "the managers of lease "+p.TakenFrom+" have the capacity; it would be taken from them")
	add(p.Paused, "paused; `idlecount resume` ends that")
	add(p.Drained, "drained; `idlecount resume` ends that")
	add(p.FormerStrategy != "", fmt.Sprintf("held by %q now: what that has made goes", p.FormerStrategy))
	add(p.RollsOut, "its template changes: the pause pods are replaced by others")
	add(p.Hold > p.Want && !p.Paused && p.LooksAgain != nil, fmt.Sprintf("%d more than wanted, until %s", p.Hold-p.Want, changeAt(p.LooksAgain, now)))
	add(p.Ends, "the configuration doesn't have it: all of it goes, its ConfigMap too")
	add(p.Trouble != "", oneLine(p.Trouble))
	return lines
}
