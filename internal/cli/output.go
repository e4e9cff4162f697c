package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"sigs.k8s.io/yaml"
)

// addOutput gives a command -o with these formats.
func addOutput(cmd *cobra.Command, target *string, formats ...string) {
	cmd.Flags().StringVarP(target, "output", "o", "", "format of the output, one of: "+strings.Join(formats, ", ")+" (default: for people)")
	// The function can't fail: the flag was made one line above.
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
}

// oneOf refuses a flag's value that is neither empty nor one of those allowed.
func oneOf(cmd *cobra.Command, flag, value string, allowed ...string) error {
	if value == "" || slices.Contains(allowed, value) {
		return nil
	}
	return usage(cmd, "--%s %q: want one of %s", flag, value, strings.Join(allowed, ", "))
}

// say tells the user something on stderr. Where that can't be written, nobody is left to tell.
func say(stderr io.Writer, text string) { _, _ = fmt.Fprintln(stderr, text) }

func writeJSON(w io.Writer, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", b)
	return err
}

func writeYAML(w io.Writer, v any) error {
	b, err := yaml.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}

// isTerminal says whether somebody looks at what is written there, on a terminal that can be redrawn.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"
}
