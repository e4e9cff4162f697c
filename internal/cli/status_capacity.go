package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	capacitystatus "idlecount.dev/idlecount/capacity/status"
	"idlecount.dev/idlecount/factory"
)

// capacity reads the room that is held for jobs, unless single pools were asked for.
func (o *statusOptions) capacity(ctx context.Context, client kubernetes.Interface) ([]capacitystatus.Row, error) {
	if len(o.names) > 0 {
		return nil, nil
	}
	labelled := func(label string) metav1.ListOptions { return metav1.ListOptions{LabelSelector: label} }
	anchors, err := client.CoreV1().ConfigMaps(o.namespace).List(ctx, labelled(factory.LabelCapacity))
	if err != nil {
		return nil, fmt.Errorf("list the capacities' ConfigMaps: %w", err)
	}
	if len(anchors.Items) == 0 {
		return nil, nil
	}
	pauses, err := client.CoreV1().Pods(o.namespace).List(ctx, labelled(factory.LabelCapacity))
	if err != nil {
		return nil, fmt.Errorf("list pause pods: %w", err)
	}
	jobs, err := client.CoreV1().Pods(o.namespace).List(ctx, labelled(factory.LabelGitLabManagerID+",!"+factory.LabelCapacity))
	if err != nil {
		return nil, fmt.Errorf("list the pods of jobs: %w", err)
	}
	return capacitystatus.Rows(anchors.Items, pauses.Items, jobs.Items), nil
}

// writeCapacity prints a table of the room that is held, each row with a line below it where something is to be explained.
func writeCapacity(b *strings.Builder, list []capacitystatus.Row, o tableOptions) error {
	columns := []string{"CAPACITY", "STRATEGY", "POLICY", "WANT", "HELD", "PENDING", "JOBS", "SCHEDULED IN"}
	if o.wide || o.namespaces {
		columns = slices.Concat([]string{"NAMESPACE"}, columns)
	}
	rows := [][]string{columns}
	for _, r := range list {
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
		for i := range cells {
			cells[i] = cmp.Or(cells[i], "-")
		}
		rows = append(rows, cells)
	}
	lines, err := align(rows)
	if err != nil {
		return err
	}
	b.WriteString(lines[0] + "\n")
	for i, r := range list {
		b.WriteString(lines[i+1] + "\n")
		if reason := r.Reason(o.now); reason != "" {
			b.WriteString("  -> " + reason + "\n")
		}
	}
	return nil
}
