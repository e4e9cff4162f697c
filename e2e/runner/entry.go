package runner

import (
	"fmt"
	"strings"
)

// Entry is a [[runners]] entry that calls idlecount's driver, as a user would write it.
type Entry struct {
	Name, Token string
	Driver      string // path of idlecount-executor
	ConfigFile  string // path that the driver is told to read the entry from
	Kubernetes  string // what stands in [runners.kubernetes], as TOML
}

// TOML is the entry as a config.toml.
func (e Entry) TOML() string {
	var b strings.Builder
	fmt.Fprintf(&b, `[[runners]]
  name = %q
  url = "https://gitlab.example.com"
  token = %q
  executor = "custom"
  [runners.custom]
`, e.Name, e.Token)
	for _, stage := range []string{"config", "prepare", "run", "cleanup"} {
		fmt.Fprintf(&b, "    %s_exec = %q\n    %s_args = [\"--config\", %q, %q]\n", stage, e.Driver, stage, e.ConfigFile, stage)
	}
	b.WriteString("  [runners.kubernetes]\n")
	for line := range strings.Lines(e.Kubernetes) {
		b.WriteString("    " + line)
	}
	return b.String()
}
