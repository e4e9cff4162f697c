// Command bench-jobstart measures how long a job waits for its script: from the start of the driver's `config` call to the
// first byte of the build script's output, warm and cold alternating in one run, beside the floor of a stage: a bare exec
// of `true` in the same pod. It also counts the writes to the API that a warm claim makes, and the streams of a warm job.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"idlecount.dev/idlecount/e2e/cluster"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("bench-jobstart", flag.ContinueOnError)
	rounds := flags.Int("rounds", 12, "warm and cold jobs each, at least 10 for figures to quote")
	if err := flags.Parse(args); err != nil {
		return err
	}
	target, err := cluster.Open(ctx, cluster.TargetFromEnv())
	if err != nil {
		return err
	}
	b, err := prepare(ctx, target)
	if err != nil {
		return err
	}
	defer b.close()
	figures, err := b.measure(ctx, *rounds)
	if err != nil {
		return err
	}
	if figures.writes, figures.execs, figures.forwards, err = b.countRequests(ctx); err != nil {
		return err
	}
	figures.print(os.Stdout)
	return nil
}
