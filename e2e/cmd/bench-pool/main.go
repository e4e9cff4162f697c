// Command bench-pool measures the manager with many idle pods on KWOK nodes, in one run: how fast it fills pools beside
// plain creates of the same pods, in turn with them; how soon claimed pods are replaced; and what it takes of the machine and
// of the API server while nothing changes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

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

// size is how much is measured.
type size struct {
	pools, perPool, rounds, burst int
	quiet                         time.Duration
}

func (s size) pods() int { return s.pools * s.perPool }

func run(ctx context.Context, args []string) (err error) {
	var s size
	flags := flag.NewFlagSet("bench-pool", flag.ContinueOnError)
	flags.IntVar(&s.pools, "pools", 20, "pools")
	flags.IntVar(&s.perPool, "per-pool", 250, "idle pods of each")
	flags.IntVar(&s.rounds, "rounds", 4, "times that plain creates and the manager's take turns; divides the pools")
	flags.IntVar(&s.burst, "burst", 200, "claims at once, whose replacements are timed")
	flags.DurationVar(&s.quiet, "quiet", time.Minute, "how long the manager is measured while nothing changes")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if s.rounds < 1 || s.pools%s.rounds != 0 || s.perPool < 1 {
		return fmt.Errorf("%d pools can't be filled in %d equal rounds", s.pools, s.rounds)
	}
	target, err := cluster.Open(ctx, cluster.TargetFromEnv())
	if err != nil {
		return err
	}
	// Tests that break the cluster would break the run.
	release, err := cluster.Lock(ctx, "tests", false, func() { progress("waiting for tests that break the cluster") })
	if err != nil {
		return err
	}
	defer release()
	b, err := prepare(ctx, target.Kubeconfig(), s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	figures, err := b.measure(ctx)
	if err != nil {
		return fmt.Errorf("%w\nthe end of the manager's log:\n%s", err, b.managerLog())
	}
	figures.print(os.Stdout)
	return nil
}
