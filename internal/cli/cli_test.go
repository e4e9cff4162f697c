package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"idlecount.dev/idlecount/entrypoint/wire"
	"idlecount.dev/idlecount/internal/cli"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares text with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got, "%s differs; if that is meant: make golden", path)
}

// idlecount runs a command line as main does.
func idlecount(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	var in, out, errOut bytes.Buffer
	code = cli.Main(ctx, args, genericiooptions.IOStreams{In: &in, Out: &out, ErrOut: &errOut})
	return code, out.String(), errOut.String()
}

func TestCommandLinesThatMakeNoSense(t *testing.T) {
	for sentence, c := range map[string]struct {
		args   []string
		stderr string
	}{
		"an unknown command, with the nearest": {
			[]string{"statsu"}, "error: there is no command \"statsu\"; did you mean status?\nsee 'idlecount --help'\n",
		},
		"an unknown command that is like none": {
			[]string{"frobnicate"}, "error: there is no command \"frobnicate\"\nsee 'idlecount --help'\n",
		},
		"help on what there isn't": {
			[]string{"help", "statsu"}, "error: there is no command \"statsu\"; did you mean status?\nsee 'idlecount --help'\n",
		},
		"a shell that there is no completion for": {
			[]string{"completion", "tcsh"}, "error: there is no completion for \"tcsh\"; there are bash, fish, powershell and zsh\nsee 'idlecount completion --help'\n",
		},
		"an unknown flag": {
			[]string{"status", "--al-namespaces"}, "error: unknown flag: --al-namespaces\nsee 'idlecount status --help'\n",
		},
		"an argument where none is taken": {
			[]string{"validate", "config.toml"}, "error: \"config.toml\" looks like a file: name it with --config config.toml\nsee 'idlecount validate --help'\n",
		},
		"an unknown format": {
			[]string{"status", "-o", "xml"}, "error: --output \"xml\": want one of wide, json, yaml, name\nsee 'idlecount status --help'\n",
		},
		"two answers to which namespace": {
			[]string{"status", "-A", "-n", "ci"}, "error: --namespace and --all-namespaces exclude each other\nsee 'idlecount status --help'\n",
		},
		"what can't be a pool": {
			[]string{"status", "-A", "a,b"},
			"error: \"a,b\" can't be the name of a pool or a capacity; `idlecount status -A -o name` lists those that exist\nsee 'idlecount status --help'\n",
		},
		"pools to pause that nobody names": {
			[]string{"pause"}, "error: name the pools and capacities to pause, or say --all; `idlecount status` shows them\nsee 'idlecount pause --help'\n",
		},
		"all pools, and one of them": {
			[]string{"drain", "--all", "a"}, "error: --all and names exclude each other\nsee 'idlecount drain --help'\n",
		},
		"a service account of a doctor without a namespace": {
			[]string{"doctor", "--manager-service-account", "idlecount"},
			"error: --manager-service-account \"idlecount\": want NAMESPACE/NAME\nsee 'idlecount doctor --help'\n",
		},
		"a time that can't be one": {
			[]string{"schedule", "--at", "tomorrow"},
			"error: --at \"tomorrow\": want a time such as 2026-03-02T08:30:00+01:00, \"2026-03-02 08:30\" or 2026-03-02\nsee 'idlecount schedule --help'\n",
		},
		"more days than a year has": {
			[]string{"schedule", "--days", "1000"}, "error: --days 1000: want a number from 1 to 366\nsee 'idlecount schedule --help'\n",
		},
		"manifests of a build that has no image": {
			[]string{"manifests"},
			"error: --image is needed: this binary is not a release, so no image belongs to it\nsee 'idlecount manifests --help'\n",
		},
		"a service account without a namespace": {
			[]string{"manifests", "--image", "x", "--driver-service-account", "gitlab-runner"},
			"error: --driver-service-account \"gitlab-runner\": want NAMESPACE/NAME\nsee 'idlecount manifests --help'\n",
		},
		"a namespace that can't be one": {
			[]string{"manifests", "--image", "x", "-n", "a/b"},
			"error: --namespace \"a/b\": not a name that a namespace can have\nsee 'idlecount manifests --help'\n",
		},
		"an unknown log format": {
			[]string{"run", "--log-format", "xml"}, "error: --log-format \"xml\": want one of text, json\nsee 'idlecount run --help'\n",
		},
		"an unknown log level": {
			[]string{"run", "--log-level", "loud"}, "error: --log-level \"loud\": want one of debug, info, warn, error\nsee 'idlecount run --help'\n",
		},
		"a lease's namespace that can't be one": {
			[]string{"run", "--leader-elect-namespace", "A/B"},
			"error: --leader-elect-namespace \"A/B\": not a name that a namespace can have\nsee 'idlecount run --help'\n",
		},
		"a listen address without a port": {
			[]string{"run", "--listen-address", "localhost"},
			"error: --listen-address \"localhost\": want HOST:PORT, :PORT, or \"\" for none\nsee 'idlecount run --help'\n",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Setenv("KUBECONFIG", kubeconfig(t, "https://127.0.0.1:1"))
			code, stdout, stderr := idlecount(t.Context(), c.args...)
			require.Equal(t, c.stderr, stderr)
			require.Equal(t, cli.ExitUsage, code)
			require.Empty(t, stdout, "stdout is data")
		})
	}
}

// TestEveryCommandExplainsItself holds what the help of each command owes its reader, and that the manual knows it.
func TestEveryCommandExplainsItself(t *testing.T) {
	manual, err := os.ReadFile("../../docs/cli.md")
	require.NoError(t, err)
	root := cli.New(genericiooptions.NewTestIOStreamsDiscard())
	root.InitDefaultCompletionCmd()
	for _, cmd := range commands(root) {
		t.Run(cmd.CommandPath(), func(t *testing.T) {
			require.NotEmpty(t, cmd.Short)
			require.NotEmpty(t, cmd.Long)
			if !strings.Contains(cmd.CommandPath(), "completion") { // cobra's own, whose examples are in its long text
				require.NotEmpty(t, cmd.Example)
				require.Contains(t, cmd.Example, "idlecount")
			}
			require.Contains(t, string(manual), "`"+cmd.CommandPath()+"`", "docs/cli.md doesn't have the command")
			cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
				if !connectionFlags()[f.Name] {
					require.Contains(t, string(manual), "`--"+f.Name, "docs/cli.md doesn't have --%s", f.Name)
				}
			})
		})
	}
}

func commands(cmd *cobra.Command) []*cobra.Command {
	list := []*cobra.Command{cmd}
	for _, sub := range cmd.Commands() {
		if sub.Name() != "help" {
			list = append(list, commands(sub)...)
		}
	}
	return list
}

// connectionFlags are kubectl's, which the manual need not repeat.
func connectionFlags() map[string]bool {
	names := map[string]bool{"help": true}
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	genericclioptions.NewConfigFlags(false).AddFlags(set)
	set.VisitAll(func(f *pflag.Flag) { names[f.Name] = true })
	return names
}

func TestHelpIsDataWhenAskedFor(t *testing.T) {
	for _, args := range [][]string{{}, {"--help"}, {"status", "--help"}} {
		code, stdout, stderr := idlecount(t.Context(), args...)
		require.Equal(t, cli.ExitOK, code)
		require.Contains(t, stdout, "Usage:")
		require.Empty(t, stderr)
	}
}

func TestVersion(t *testing.T) {
	code, stdout, stderr := idlecount(t.Context(), "version")
	require.Equal(t, cli.ExitOK, code, stderr)
	require.Regexp(t, `^idlecount \S+ \(protocol \d+, go\S+, \w+/\w+.*\)\n$`, stdout)

	code, stdout, _ = idlecount(t.Context(), "version", "-o", "json")
	require.Equal(t, cli.ExitOK, code)
	var v map[string]any
	require.NoError(t, json.Unmarshal([]byte(stdout), &v))
	require.Contains(t, v, "version")
	require.InDelta(t, wire.Protocol, v["protocol"], 0)
}

// lines are those of an output.
func lines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}
