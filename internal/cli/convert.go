package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"idlecount.dev/idlecount/config"
)

type convertOptions struct {
	genericiooptions.IOStreams
	files []string
}

func newConvert(streams genericiooptions.IOStreams) *cobra.Command {
	o := &convertOptions{IOStreams: streams}
	cmd := &cobra.Command{
		Use:   "convert",
		Short: "Write a docker+machine runner's idle settings as idlecount's",
		Long: `Read the [runners.machine] and [[runners.machine.autoscaling]] tables of a config.toml, and print a file with what
they mean in idlecount's keys: idle_count, idle_time, scale_factor and idle_policy tables.

It is a second file, to be given beside the first one: its entries add to the [[runners]] of the same name. What has no
equivalent, or another meaning, is a warning on stderr. No file is changed, and no cluster is asked.`,
		Example: `  # See what it makes of the file
  idlecount convert --config config.toml

  # Keep it, and check both together once executor = "custom" stands in the first
  idlecount convert --config config.toml > idle.toml
  idlecount validate --config config.toml --config idle.toml`,
		Args: args(cobra.NoArgs),
		RunE: perform(o),
	}
	cmd.Flags().StringArrayVarP(&o.files, "config", "c", nil,
		"GitLab Runner's config.toml; may be repeated, each file is converted for itself (default: $CONFIG_FILE, else "+defaultConfig+")")
	return cmd
}

func (o *convertOptions) complete(*cobra.Command, []string) error {
	o.files = configFiles(o.files)
	return nil
}

func (o *convertOptions) validate(*cobra.Command) error { return nil }

func (o *convertOptions) run(context.Context) error {
	text, notes, err := config.ConvertMachine(o.files)
	if err != nil {
		for _, problem := range problems(err) {
			say(o.ErrOut, "error: "+problem.Error())
		}
		return errReported
	}
	for _, note := range notes {
		say(o.ErrOut, "warning: "+note.String())
	}
	if _, err := fmt.Fprint(o.Out, text); err != nil {
		return fmt.Errorf("write the converted file: %w", err)
	}
	return nil
}
