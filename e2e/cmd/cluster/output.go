package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"idlecount.dev/idlecount/e2e/cluster"
)

func writeJSON(w io.Writer, status cluster.Status) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(status)
}

func writeTable(w io.Writer, status cluster.Status, now time.Time) error {
	if status.State == cluster.IsDown {
		return nil
	}
	table := tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)
	fmt.Fprintln(table, "COMPONENT\tPID\tAGE\tHEALTH\tLOG")
	for _, c := range status.Components {
		pid, age, health := "-", "-", "ok"
		if c.PID > 0 {
			pid, age = fmt.Sprint(c.PID), duration.HumanDuration(now.Sub(c.Started))
		}
		if !c.Healthy {
			health = c.Problem
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", c.Component, pid, age, health, c.Log)
	}
	fmt.Fprintln(table, "\nNODE\tKIND\tPODS\tHEALTH")
	for _, n := range status.Nodes {
		kind, health := "real", "ok"
		if n.KWOK {
			kind = "kwok"
		}
		if !n.Ready {
			health = n.Problem
		}
		fmt.Fprintf(table, "%s\t%s\t%d\t%s\n", n.Name, kind, n.Pods, health)
	}
	return table.Flush()
}

// writeLogs skips components without a log unless they were asked for.
func writeLogs(w io.Writer, options cluster.Options, components []cluster.Component, lines int, named bool) error {
	for _, component := range components {
		text, err := cluster.ReadLog(options, component, lines)
		if errors.Is(err, os.ErrNotExist) && !named {
			continue
		}
		if err != nil {
			return fmt.Errorf("the log of %s: %w", component, err)
		}
		if len(components) > 1 {
			fmt.Fprintf(w, "==> %s <==\n", component)
		}
		fmt.Fprintln(w, text)
	}
	return nil
}
