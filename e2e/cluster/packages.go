package cluster

import (
	"context"
	"io"
	"maps"
	"slices"

	"idlecount.dev/idlecount/e2e/cluster/internal/host"
)

// EnsurePackages makes sure that files are there which Debian packages bring: packages maps a command's name or an
// absolute path to the package. Missing ones are installed with apt-get if that is possible (root on a Debian-like
// system); if not, the error names them all.
func EnsurePackages(ctx context.Context, progress io.Writer, packages map[string]string) error {
	var requirements []host.Requirement
	for _, file := range slices.Sorted(maps.Keys(packages)) {
		requirements = append(requirements, host.Requirement{Any: []string{file}, Package: packages[file]})
	}
	return host.Install(ctx, requirements, progress)
}
