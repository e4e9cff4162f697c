package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "idlecount.dev/idlecount/"

// A rule says what a package, and everything that it pulls in, may not import, and why. A name that ends in "..." stands
// for all that begins with what is before it.
type rule struct {
	pkg    string
	forbid []string
	reason string
}

// TestImports holds docs/architecture.md's arrows: from a folder's name a reader knows what its code may touch.
func TestImports(t *testing.T) {
	everyPackage := []string{module + "e2e...", module + "examples..."}
	rules := []rule{
		{"entrypoint", []string{"k8s.io/...", "sigs.k8s.io/...", "net/http"},
			"the entrypoint is PID 1 of every pod: it must stay small and start in milliseconds"},
		{"entrypoint/wire", []string{"k8s.io/...", "os", "net", "os/exec"},
			"wire is constants and shapes: it touches no system"},
		{"cron", []string{"k8s.io/...", module + "..."},
			"a period is arithmetic on time: it sees no client and no other part"},
		{"pool/plan", []string{"k8s.io/client-go...", "net/http", "os/exec", module + "pool", module + "pool/claim", module + "config"},
			"a plan is a pure function: it must not be able to see a client"},
		{"capacity/plan", []string{"k8s.io/client-go...", "os/exec", module + "capacity", module + "pool", module + "config"},
			"a plan is a pure function: it must not be able to see a client"},
		{"capacity", []string{module + "internal/cli...", module + "executor-plugin...", module + "pool", module + "pool/claim", module + "pool/status", "github.com/spf13/cobra"},
			"capacity is held for jobs of any executor: it knows nothing of pools, claims and command lines"},
		{"internal/leasenote", []string{module + "..."},
			"a note in a lease: it knows nothing of what is noted"},
		{"internal/leases", []string{module + "..."},
			"who holds a lease, and whether what he has may be taken: it knows nothing of what that is"},
		{"internal/unkept", []string{"k8s.io/...", module + "..."},
			"a list of reasons: it knows nothing of what isn't kept"},
		{"internal/watches", []string{module + "..."},
			"what informers have in common: it knows nothing of what is watched"},
		{"internal/rights", []string{module + "..."},
			"how rights are listed: it knows nothing of who needs them"},
		{"internal/quota", []string{"k8s.io/client-go...", module + "pool..."},
			"what a pod takes of a quota is arithmetic"},
		{"factory", []string{"k8s.io/client-go...", "os/exec", module + "pool..."},
			"the factory makes objects: it must not be able to send them"},
		{"config", []string{"k8s.io/client-go...", "os/exec", module + "pool..."},
			"config reads files: it must not be able to see a cluster"},
		{"pool/claim", []string{module + "pool", module + "internal/cli...", module + "executor-plugin..."},
			"claims are made by drivers: they must work without the controller"},
		{"executor-plugin", []string{module + "capacity...", "k8s.io/apimachinery/pkg/util/strategicpatch", module + "pool", module + "pool/plan", module + "internal/cli", "k8s.io/client-go/informers...", "k8s.io/client-go/tools/leaderelection..."},
			"a job must be able to claim while no manager runs, and the driver starts five times a job: it must start fast"},
		{"preflight", []string{module + "internal/cli...", module + "executor-plugin...", "github.com/spf13/cobra"},
			"checks are made by the manager and by the command line: they print nothing"},
		{"pool", []string{module + "internal/cli...", module + "executor-plugin...", "github.com/spf13/cobra"},
			"the controller knows nothing of its command line"},
	}
	for _, r := range rules {
		t.Run(r.pkg, func(t *testing.T) {
			for _, dep := range dependencies(t, "./"+r.pkg) {
				if dep == module+r.pkg {
					continue
				}
				for _, pattern := range slices.Concat(r.forbid, everyPackage) {
					if matches(pattern, dep) {
						t.Errorf("%s imports %s: %s", r.pkg, dep, r.reason)
					}
				}
			}
		})
	}
}

// TestEveryPackageSaysWhatItIs: a folder without a package comment leaves the reader to guess what it owns.
func TestEveryPackageSaysWhatItIs(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.ImportPath}}\t{{.Doc}}", "./...").Output()
	require.NoError(t, err)
	for line := range strings.Lines(string(out)) {
		name, doc, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if doc == "" {
			t.Errorf("package %s has no package comment", name)
		}
	}
}

// TestNoReplace: `go install idlecount.dev/idlecount@latest` refuses a go.mod that replaces modules.
func TestNoReplace(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json").Output()
	require.NoError(t, err)
	require.Contains(t, string(out), `"Replace": null`)
}

func dependencies(t *testing.T, pkg string) []string {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", pkg).Output()
	require.NoError(t, err, "go list -deps %s", pkg)
	deps := strings.Fields(string(out))
	require.NotEmpty(t, deps)
	return deps
}

func matches(pattern, dep string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "..."); ok {
		return strings.HasPrefix(dep, prefix)
	}
	return dep == pattern
}
