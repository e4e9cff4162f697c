// Command images builds idlecount's two images for the machine's architecture and pushes them to a registry, with the
// credentials of Docker's configuration; no Docker is needed. It prints the references, one a line.
//
//	images registry.example.com/ci
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"idlecount.dev/idlecount/e2e/cluster"
	"idlecount.dev/idlecount/e2e/images"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) != 1 || strings.TrimSpace(args[0]) == "" {
		return errors.New("say where to push to: make images REGISTRY=registry.example.com/ci")
	}
	progress := func(line string) { fmt.Fprintln(stderr, line) }
	set, err := images.Build(ctx, progress, images.Idlecount, images.Entrypoint)
	if err != nil {
		return err
	}
	references, err := set.Publish(ctx, cluster.PushTo(args[0]))
	if err != nil {
		return fmt.Errorf("%w; does the registry exist, and may you push to it (docker login)?", err)
	}
	for _, name := range []images.Name{images.Idlecount, images.Entrypoint} {
		fmt.Fprintln(stdout, references[name])
	}
	return nil
}
