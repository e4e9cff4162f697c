//go:build linux

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"idlecount.dev/idlecount/entrypoint/claimfile"
	"idlecount.dev/idlecount/entrypoint/proof"
	"idlecount.dev/idlecount/entrypoint/wire"
)

const (
	commandVersion = "version"
	// defaultGrace is what a cancelled script gets between TERM and KILL.
	defaultGrace = 10 * time.Second
	usage        = "usage: entrypoint install|serve|pause|claim|run|cancel|version [--dir DIR] [--job ID] [--key KEY] [--id ID] [--grace DURATION]"
)

// command is what the arguments say; job is set for claim, and key may be, id for run and cancel, grace for cancel.
type command struct {
	name  string
	dir   string
	job   string
	key   string
	id    string
	grace time.Duration
}

// parse reads the arguments; an error of flag.ErrHelp asks for the usage.
func parse(args []string) (command, error) {
	if len(args) == 0 {
		return command{}, errors.New("no command is given")
	}
	c := command{name: args[0]}
	flags := flag.NewFlagSet(c.name, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&c.dir, "dir", wire.Dir, "")
	switch c.name {
	case wire.CommandInstall, wire.CommandServe, wire.CommandPause, commandVersion:
	case wire.CommandClaim:
		flags.StringVar(&c.job, "job", "", "")
		flags.StringVar(&c.key, "key", "", "")
	case wire.CommandCancel:
		flags.DurationVar(&c.grace, "grace", defaultGrace, "")
		fallthrough
	case wire.CommandRun:
		flags.StringVar(&c.id, "id", "", "")
	case "help", "-h", "-help", "--help":
		return command{}, flag.ErrHelp
	default:
		return command{}, fmt.Errorf("unknown command %q", c.name)
	}
	if err := flags.Parse(args[1:]); err != nil {
		return command{}, err
	}
	if flags.NArg() > 0 {
		return command{}, fmt.Errorf("%s: unexpected argument %q", c.name, flags.Arg(0))
	}
	return c, c.validate()
}

func (c command) validate() error {
	switch {
	case c.dir == "":
		return fmt.Errorf("%s: --dir is empty", c.name)
	case c.key != "":
		if _, err := proof.Parse(c.key); err != nil {
			return fmt.Errorf("%s: --key: %w", c.name, err)
		}
		return claimfile.CheckJob(c.job)
	case c.name == wire.CommandClaim:
		return claimfile.CheckJob(c.job)
	case (c.name == wire.CommandRun || c.name == wire.CommandCancel) && c.id == "":
		return fmt.Errorf("%s: --id is missing", c.name)
	case c.grace < 0:
		return fmt.Errorf("%s: --grace %s is negative", c.name, c.grace)
	}
	return nil
}
