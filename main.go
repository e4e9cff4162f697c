// Command idlecount keeps warm pods for GitLab CI jobs on Kubernetes.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // periods have timezones, and the image has no files of the system's

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"idlecount.dev/idlecount/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(cli.Main(ctx, os.Args[1:], genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}))
}
