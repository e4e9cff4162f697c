// Command runjob runs one job through a custom executor driver as GitLab Runner would, without a GitLab: it reads
// [runners.custom] of a config.toml, prints the job's log, and ends with 0 when the job succeeded. Ctrl-C cancels the job
// as the button in GitLab does.
//
//	runjob --config config.toml --image alpine:3.22 --script 'echo hi'
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"idlecount.dev/idlecount/e2e/runner"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	code, err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "runjob:", err)
	}
	os.Exit(code)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (int, error) {
	// Like GitLab's ids: no two jobs have the same.
	job := runner.Job{ID: time.Now().UnixMilli()}
	flags := flag.NewFlagSet("runjob", flag.ContinueOnError)
	flags.SetOutput(stderr)
	config := flags.String("config", "config.toml", "GitLab Runner's configuration `file`")
	name := flags.String("runner", "", "`name` of the [[runners]] entry; not needed where there is one")
	times := flags.Bool("times", false, "print how long each stage took, to stderr")
	flags.Int64Var(&job.ID, "id", job.ID, "the job's `id`")
	flags.StringVar(&job.Image, "image", "", "the job's `image`; empty is the runner's own")
	flags.DurationVar(&job.Timeout, "timeout", time.Hour, "the job's timeout")
	flags.Func("script", "a `command` of the script; may be repeated", add(&job.Script))
	flags.Func("after-script", "a `command` of after_script; may be repeated", add(&job.AfterScript))
	flags.Func("service", "`image[=alias]` of a service; may be repeated", func(text string) error {
		image, alias, _ := strings.Cut(text, "=")
		job.Services = append(job.Services, runner.Service{Name: image, Alias: alias})
		return nil
	})
	flags.Func("variable", "a job variable, `NAME=value`; may be repeated", func(text string) error {
		key, value, ok := strings.Cut(text, "=")
		if !ok {
			return fmt.Errorf("is not NAME=value")
		}
		job.Variables = append(job.Variables, runner.Variable{Key: key, Value: value})
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return 2, nil //nolint:nilerr // flag has printed it
	}
	if flags.NArg() > 0 || len(job.Script) == 0 {
		return 2, fmt.Errorf("give the script with --script 'command'; see --help")
	}
	r, err := runner.Load(*config, *name)
	if err != nil {
		return 2, err
	}
	file, err := filepath.Abs(*config)
	if err != nil {
		return 2, err
	}
	// A driver whose …_args name no file reads the one that GitLab Runner is told by this variable. It starts in a folder of the job's.
	r.Environ = append(os.Environ(), "CONFIG_FILE="+file)
	r.Diagnostics = stderr
	result := r.Run(ctx, job, stdout)
	if *times {
		printTimes(stderr, result)
	}
	if result.Status != runner.Success {
		return 1, nil
	}
	return 0, nil
}

func add(to *[]string) func(string) error {
	return func(text string) error {
		*to = append(*to, text)
		return nil
	}
}

// printTimes prints when each call of the driver began, counted from the first, and how long it took.
func printTimes(w io.Writer, result runner.Result) {
	for _, call := range result.Calls {
		fmt.Fprintf(w, "%8.3fs  %7.3fs  %s\n", call.Start.Sub(result.Start).Seconds(), call.End.Sub(call.Start).Seconds(), call.Stage)
	}
}
