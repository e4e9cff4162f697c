package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// Requirement is something that a Debian package brings.
type Requirement struct {
	// Any of these must be there: a command's name, looked up in PATH, or an absolute path.
	Any     []string
	Package string
}

func (r Requirement) met() bool {
	for _, name := range r.Any {
		if strings.HasPrefix(name, "/") {
			if _, err := os.Stat(name); err == nil {
				return true
			}
		} else if _, err := exec.LookPath(name); err == nil {
			return true
		}
	}
	return false
}

// Missing returns the packages of the requirements that are not met, without doubles.
func Missing(requirements []Requirement) []string {
	var packages []string
	for _, r := range requirements {
		if !r.met() && !slices.Contains(packages, r.Package) {
			packages = append(packages, r.Package)
		}
	}
	return packages
}

// Install brings what is missing with apt-get where that is possible, or says what to install.
func Install(ctx context.Context, requirements []Requirement, progress io.Writer) error {
	packages := Missing(requirements)
	if len(packages) == 0 {
		return nil
	}
	list := strings.Join(packages, " ")
	if _, err := exec.LookPath("apt-get"); err != nil || os.Geteuid() != 0 {
		return fmt.Errorf("the machine lacks what these Debian packages bring: %s\ninstall them, for example with: sudo apt-get install --no-install-recommends %s", list, list)
	}
	fmt.Fprintf(progress, "installing %s…\n", list)
	// The lists may be old or absent, and then the install fails; an update that fails is only worth a word if it does.
	updateErr := aptGet(ctx, "update")
	if err := aptGet(ctx, append([]string{"install", "--yes", "--no-install-recommends"}, packages...)...); err != nil {
		return errors.Join(fmt.Errorf("install %s: %w", list, err), updateErr)
	}
	if still := Missing(requirements); len(still) > 0 {
		return fmt.Errorf("the Debian packages %s are installed, but what the local cluster needs of them is not where it was expected", strings.Join(still, " "))
	}
	return nil
}

func aptGet(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "apt-get", append([]string{"-qq", "-o", "DPkg::Lock::Timeout=120"}, args...)...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("apt-get %s: %w\n%s", args[0], err, strings.TrimSpace(string(out)))
	}
	return nil
}
