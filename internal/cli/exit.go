package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Exit codes of every command.
const (
	ExitOK      = 0
	ExitError   = 1 // what was asked can't be done: an invalid configuration, an unknown pool, a refusal
	ExitUsage   = 2 // the command line makes no sense
	ExitCluster = 3 // the API server can't be reached or doesn't accept us; the same command may succeed later
)

// usageError is a command line that makes no sense.
type usageError struct {
	command string // whose --help says more
	err     error
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// clusterError is an API server that can't be reached or doesn't accept us, in words for a user.
type clusterError struct {
	message string
	err     error
}

func (e *clusterError) Error() string { return e.message }
func (e *clusterError) Unwrap() error { return e.err }

// errReported ends a command whose problems are on stderr already.
var errReported = errors.New("reported")

// report prints an error as the user sees it, once, and says how the process should exit.
func report(err error, stderr io.Writer) int {
	if err == nil {
		return ExitOK
	}
	if errors.Is(err, errReported) {
		return ExitError
	}
	say(stderr, "error: "+strings.TrimSpace(err.Error()))
	if e, ok := errors.AsType[*usageError](err); ok {
		say(stderr, fmt.Sprintf("see '%s --help'", e.command))
		return ExitUsage
	}
	if _, ok := errors.AsType[*clusterError](err); ok {
		return ExitCluster
	}
	return ExitError
}

// usage makes the error of a command line that makes no sense.
func usage(cmd *cobra.Command, format string, args ...any) error {
	return &usageError{cmd.CommandPath(), fmt.Errorf(format, args...)}
}

// args makes a cobra check of arguments one whose errors are usage errors. A file that was named without --config is the
// usual reason for one.
func args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, given []string) error {
		file := slices.IndexFunc(given, func(arg string) bool { return strings.HasSuffix(arg, ".toml") })
		if file >= 0 && cmd.Flags().Lookup("config") != nil {
			return usage(cmd, "%q looks like a file: name it with --config %s", given[file], given[file])
		}
		err := check(cmd, given)
		switch {
		case err == nil:
			return nil
		case check(cmd, nil) == nil && check(cmd, given[:1]) != nil:
			return usage(cmd, "%s takes no arguments, and %q is one", cmd.Name(), given[0])
		default:
			return &usageError{cmd.CommandPath(), err}
		}
	}
}

// operation is a command's options on their way from flags to an effect.
type operation interface {
	complete(cmd *cobra.Command, args []string) error // fills in what flags leave open
	validate(cmd *cobra.Command) error                // refuses what makes no sense, before anything is touched
	run(ctx context.Context) error
}

// perform takes an operation through its three steps.
func perform(o operation) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := o.complete(cmd, args); err != nil {
			return err
		}
		if err := o.validate(cmd); err != nil {
			return err
		}
		return o.run(cmd.Context())
	}
}
