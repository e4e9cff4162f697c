package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"idlecount.dev/idlecount/e2e/timing"
)

// figures are what one run measured.
type figures struct {
	warm, cold, exec []time.Duration
	writes           []string // what a warm job's prepare wrote to the API: method and path
	execs, forwards  int      // streams that a whole warm job opened
}

func (f figures) print(w io.Writer) {
	warm, cold, exec := timing.Quantile(f.warm, 0.5), timing.Quantile(f.cold, 0.5), timing.Quantile(f.exec, 0.5)
	fmt.Fprintln(w, "from the driver's first call to the first byte of the script's output")
	fmt.Fprintln(w, "        n   median      p90")
	row := func(name string, d []time.Duration) {
		fmt.Fprintf(w, "%-6s %2d  %4.0f ms  %4.0f ms\n", name, len(d), timing.Milliseconds(timing.Quantile(d, 0.5)), timing.Milliseconds(timing.Quantile(d, 0.9)))
	}
	row("warm", f.warm)
	row("cold", f.cold)
	row("exec", f.exec)
	fmt.Fprintf(w, "cold / warm         %.1f\n", cold.Seconds()/warm.Seconds())
	fmt.Fprintf(w, "warm / bare exec    %.1f\n", warm.Seconds()/exec.Seconds())
	fmt.Fprintf(w, "API writes a claim  %d (%s)\n", len(f.writes), strings.Join(f.writes, ", "))
	fmt.Fprintf(w, "streams a job       %d exec, %d port-forward\n", f.execs, f.forwards)
}
