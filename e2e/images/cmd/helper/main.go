// Command helper stands in for gitlab-runner-helper in the images of the tests. It understands the sub-commands and flags
// that GitLab Runner's scripts call for caches in a folder and for zip artifacts, and really does what they ask:
//
//	cache-extractor      unpacks a cache file into the working directory
//	cache-archiver       packs paths into a cache file
//	artifacts-uploader   packs paths and posts them to the coordinator
//	artifacts-downloader fetches another job's artifacts and unpacks them
//
// It refuses what it can't do (caches in object storage, other formats than zip) rather than pretending.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "FATAL:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("no command given")
	}
	command, args := args[0], args[1:]
	switch command {
	case "--version", "-v":
		fmt.Println("gitlab-runner-helper stand-in of idlecount's tests")
		return nil
	case "cache-extractor":
		return extractCache(args)
	case "cache-archiver":
		return archiveCache(args)
	case "artifacts-uploader":
		return uploadArtifacts(ctx, args)
	case "artifacts-downloader":
		return downloadArtifacts(ctx, args)
	default:
		return fmt.Errorf("command %q is not part of this stand-in", command)
	}
}
