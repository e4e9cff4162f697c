package cli

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"idlecount.dev/idlecount/entrypoint/wire"
	"idlecount.dev/idlecount/internal/version"
)

// build is what `idlecount version` says. The field names of its JSON are an interface.
type build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Protocol int    `json:"protocol"` // between driver and entrypoint; part of every shape
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func thisBuild() build {
	b := build{
		Version: version.String(), Protocol: wire.Protocol,
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			b.Commit = s.Value
		}
	}
	return b
}

// String is the build in one line.
func (b build) String() string {
	commit := ""
	if b.Commit != "" {
		commit = ", commit " + b.Commit[:min(12, len(b.Commit))]
	}
	return fmt.Sprintf("idlecount %s (protocol %d, %s, %s%s)", b.Version, b.Protocol, b.Go, b.Platform, commit)
}

type versionOptions struct {
	genericiooptions.IOStreams
	output string
}

func newVersion(streams genericiooptions.IOStreams) *cobra.Command {
	o := &versionOptions{IOStreams: streams}
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of idlecount and of its protocol",
		Long: `Print the version of this binary, and the version of the protocol between driver and entrypoint.

The protocol is part of a pod's shape: binaries with the same protocol find each other's warm pods, whatever
their own versions are.`,
		Example: `  idlecount version
  idlecount version -o json`,
		Args: args(cobra.NoArgs),
		RunE: perform(o),
	}
	addOutput(cmd, &o.output, "json")
	return cmd
}

func (o *versionOptions) complete(*cobra.Command, []string) error { return nil }

func (o *versionOptions) validate(cmd *cobra.Command) error {
	return oneOf(cmd, "output", o.output, "json")
}

func (o *versionOptions) run(context.Context) error {
	b := thisBuild()
	if o.output == "json" {
		return writeJSON(o.Out, b)
	}
	_, err := fmt.Fprintln(o.Out, b)
	return err
}
