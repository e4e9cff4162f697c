package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"idlecount.dev/idlecount/capacity"
	"idlecount.dev/idlecount/config"
)

type validateOptions struct {
	genericiooptions.IOStreams
	files  []string
	output string
	now    func() time.Time
}

func newValidate(streams genericiooptions.IOStreams) *cobra.Command {
	o := &validateOptions{IOStreams: streams, now: time.Now}
	cmd := &cobra.Command{
		Use:   "validate",
		Short: "Check a config.toml and name every problem in it",
		Long: `Check one or more config.toml files as the manager would read them.

Every problem is named at once, one a line on stderr, with its file and path ("error: ..."); so is what is set
and has no effect, or looks misspelt ("warning: ..."). [runners.custom] is checked too: whether GitLab Runner
calls idlecount-executor for each stage as it can be called. The exit code is 1 if there is an error; warnings
alone leave it 0.
-o json prints the pools and capacities that the configuration asks for. The files are all that is read: no cluster is asked.`,
		Example: `  idlecount validate --config config.toml

  # GitLab's file, and idlecount's keys in one of their own
  idlecount validate --config /etc/gitlab-runner/config.toml --config idlecount.toml

  # Which pools will there be?
  idlecount validate -o json | jq -r '.pools[] | "\(.name) \(.image) \(.idle_count)"'`,
		Args: args(cobra.NoArgs),
		RunE: perform(o),
	}
	addConfig(cmd, &o.files)
	addOutput(cmd, &o.output, "json")
	return cmd
}

func (o *validateOptions) complete(*cobra.Command, []string) error {
	o.files = configFiles(o.files)
	return nil
}

func (o *validateOptions) validate(cmd *cobra.Command) error {
	return oneOf(cmd, "output", o.output, "json")
}

// errInterrupted ends a command that was asked to stop before it was done.
var errInterrupted = errors.New("interrupted: the files have not been checked")

func (o *validateOptions) run(ctx context.Context) error {
	type result struct {
		cfg      *config.Config
		warnings []config.Problem
		err      error
	}
	// Reading takes its time where a file is a pipe, or made to be hard to parse. It can't be cut short, but left alone.
	done := make(chan result, 1)
	go func() {
		cfg, warnings, err := config.Check(o.files, capacity.Judge)
		done <- result{cfg, warnings, err}
	}()
	var r result
	select {
	case r = <-done:
	case <-ctx.Done():
		return errInterrupted
	}
	for _, w := range r.warnings {
		say(o.ErrOut, "warning: "+w.Error())
	}
	var list configuredList
	if r.err == nil {
		list, r.err = configuredBy(r.cfg, o.now())
	}
	if r.err != nil {
		for _, problem := range problems(r.err) {
			say(o.ErrOut, "error: "+problem.Error())
		}
		return errReported
	}
	say(o.ErrOut, o.summary(r.cfg, list))
	if o.output == "json" {
		return writeJSON(o.Out, list)
	}
	return nil
}

func (o *validateOptions) summary(cfg *config.Config, list configuredList) string {
	var names []string
	for _, f := range o.files {
		names = append(names, filepath.Base(f))
	}
	runners := 0
	for _, r := range cfg.Runners {
		if r.Managed() {
			runners++
		}
	}
	verb := "is"
	if len(names) > 1 {
		verb = "are"
	}
	return fmt.Sprintf("%s %s valid: %s with [runners.kubernetes], %s", strings.Join(names, " and "), verb, count(runners, "runner"), list)
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if stem, ok := strings.CutSuffix(noun, "y"); ok { // a capacity
		return fmt.Sprintf("%d %sies", n, stem)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
