// Command demo shows idlecount's main job for real: a cluster, the manager in it, a pool of warm pods, the same GitLab job
// run cold and warm through the driver. It may be run again and again; `demo down` removes what it made.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"idlecount.dev/idlecount/e2e/cluster"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	options := cluster.TargetFromEnv()
	switch {
	case len(args) == 1 && args[0] == "up":
		return up(ctx, options)
	case len(args) == 1 && args[0] == "down":
		return down(ctx, options)
	default:
		return errors.New("usage: demo up|down, with CLUSTER=local|kind|existing in the environment (existing: KUBECONFIG and REGISTRY too)")
	}
}
