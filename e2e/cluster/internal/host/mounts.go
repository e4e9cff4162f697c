package host

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// mount is one line of /proc/self/mountinfo, as far as it matters here.
type mount struct {
	point, kind string
	options     []string // of the file system: the cgroup controllers, for one
}

func mounts() ([]mount, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var found []mount
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		m, err := parseMount(lines.Text())
		if err != nil {
			return nil, err
		}
		found = append(found, m)
	}
	return found, lines.Err()
}

// parseMount reads proc_pid_mountinfo(5): fixed fields, optional ones up to a lone dash, then type, source, options.
func parseMount(line string) (mount, error) {
	before, after, ok := strings.Cut(line, " - ")
	fields, tail := strings.Fields(before), strings.Fields(after)
	if !ok || len(fields) < 5 || len(tail) < 3 {
		return mount{}, fmt.Errorf("mountinfo line %q", line)
	}
	// Spaces, tabs, newlines and backslashes in the path are written in octal.
	point := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(fields[4])
	return mount{point: point, kind: tail[0], options: strings.Split(tail[2], ",")}, nil
}

// MountsBelow returns the mount points at or below the folder, the last mounted first: the order to unmount them in.
func MountsBelow(folder string) ([]string, error) {
	all, err := mounts()
	if err != nil {
		return nil, err
	}
	folder = filepath.Clean(folder)
	var below []string
	for _, m := range all {
		if m.point == folder || strings.HasPrefix(m.point, folder+"/") {
			below = append([]string{m.point}, below...)
		}
	}
	return below, nil
}

// UnmountBelow detaches all mounts at or below the folder.
func UnmountBelow(folder string) error {
	points, err := MountsBelow(folder)
	if err != nil {
		return err
	}
	var errs []error
	for _, point := range points {
		// Detach: a mount that something still uses leaves the tree at once and goes when that ends.
		err := unix.Unmount(point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		// EINVAL: went away with a mount above it, or by itself, since the list was read.
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("unmount %s: %w", point, err))
		}
	}
	return errors.Join(errs...)
}
