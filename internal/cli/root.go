// Package cli is the command line of the idlecount binary: one file a command, each of which turns flags into options,
// completes and validates them, and runs with the streams it was given. Data goes to stdout, everything else to stderr.
// It owns no behaviour of pools: it reads the configuration, starts the controller, and prints what others computed.
package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"idlecount.dev/idlecount/internal/version"
)

// Main runs the command line and returns the exit code. Cancelling ctx is how a signal asks it to stop.
func Main(ctx context.Context, args []string, streams genericiooptions.IOStreams) int {
	root := New(streams) //nolint:contextcheck // cobra hands the context to the command that runs
	root.SetArgs(args)
	return report(root.ExecuteContext(ctx), streams.ErrOut)
}

// New is the tree of commands.
func New(streams genericiooptions.IOStreams) *cobra.Command {
	root := &cobra.Command{
		Use:   "idlecount",
		Short: "Warm pods for GitLab CI jobs on Kubernetes",
		Long: `idlecount is IdleCount for Kubernetes: it keeps warm pods ready, so that a GitLab CI job starts in a pod
instead of waiting for a node, an image and a container.

It reads the config.toml that GitLab Runner has already. Exit codes: 0 done, 1 error, 2 usage,
3 the API server can't be reached or doesn't accept the credentials.`,
		Example: `  # Is the configuration right, and what will it keep?
  idlecount validate --config config.toml -o json

  # Put the manager into a cluster
  idlecount manifests --config config.toml --image registry.example.com/idlecount | kubectl apply -f -

  # What is there, and why is something missing?
  idlecount status -A --watch`,
		Version:       version.String(),
		SilenceErrors: true, // Main prints them, once
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, given []string) error {
			if len(given) == 0 {
				return cmd.Help()
			}
			return noCommand(cmd, given[0])
		},
	}
	root.SetVersionTemplate(thisBuild().String() + "\n")
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	root.SuggestionsMinimumDistance = 2
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &usageError{cmd.CommandPath(), err}
	})
	root.AddCommand(
		newRun(streams),
		newStatus(streams),
		newSchedule(streams),
		newPlan(streams),
		newPause(streams),
		newResume(streams),
		newDrain(streams),
		newDoctor(streams),
		newValidate(streams),
		newConvert(streams),
		newManifests(streams),
		newVersion(streams),
	)
	refuseOthers(root)
	return root
}

// refuseOthers makes a usage error of a help topic or a shell that doesn't exist; cobra shows its help, and success.
func refuseOthers(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "help":
			show := cmd.Run
			cmd.Run = nil
			cmd.RunE = func(cmd *cobra.Command, given []string) error {
				if _, rest, err := root.Find(given); err != nil || len(rest) > 0 {
					return noCommand(root, strings.Join(given, " "))
				}
				show(cmd, given)
				return nil
			}
		case "completion":
			cmd.Args = cobra.ArbitraryArgs
			cmd.RunE = func(cmd *cobra.Command, given []string) error {
				if len(given) > 0 {
					return usage(cmd, "there is no completion for %q; there are bash, fish, powershell and zsh", given[0])
				}
				return cmd.Help()
			}
		}
	}
}

func noCommand(cmd *cobra.Command, given string) error {
	if near := cmd.SuggestionsFor(given); len(near) > 0 {
		return usage(cmd, "there is no command %q; did you mean %s?", given, strings.Join(near, " or "))
	}
	return usage(cmd, "there is no command %q", given)
}
