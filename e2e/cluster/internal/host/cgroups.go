package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Cgroup is a control group of the same name in each hierarchy of the machine: one with cgroup v2, one per controller
// with v1.
type Cgroup struct {
	// Name is relative to the root of each hierarchy.
	Name string
}

// hierarchies returns the mount points of the control group file systems, v1 and v2.
func hierarchies() (points []string, unified string, err error) {
	all, err := mounts()
	if err != nil {
		return nil, "", err
	}
	for _, m := range all {
		switch m.kind {
		case "cgroup":
			points = append(points, m.point)
		case "cgroup2":
			points = append(points, m.point)
			unified = m.point
		}
	}
	if len(points) == 0 {
		return nil, "", errors.New("no cgroup file system is mounted, the kubelet needs one")
	}
	return points, unified, nil
}

// Create makes the group in all hierarchies.
func (c Cgroup) Create() error {
	points, unified, err := hierarchies()
	if err != nil {
		return err
	}
	for _, point := range points {
		if err := os.MkdirAll(filepath.Join(point, c.Name), 0o755); err != nil {
			return fmt.Errorf("create cgroup: %w", err)
		}
	}
	if unified == "" || len(points) > 1 {
		return nil // v1, or the hybrid form, where v2 has no controllers
	}
	// v2: a group has the controllers that its parent hands down.
	available, err := os.ReadFile(filepath.Join(unified, "cgroup.controllers"))
	if err != nil {
		return err
	}
	for controller := range strings.FieldsSeq(string(available)) {
		for _, group := range []string{unified, filepath.Join(unified, c.Name)} {
			err := os.WriteFile(filepath.Join(group, "cgroup.subtree_control"), []byte("+"+controller), 0o644)
			// A controller that can't be handed down (rdma, misc in some kernels) is only missed if the kubelet says so.
			if err != nil && slices.Contains([]string{"cpu", "cpuset", "memory", "pids"}, controller) {
				return fmt.Errorf("hand down cgroup controller %s: %w", controller, err)
			}
		}
	}
	return nil
}

// Folders returns the group's folder in each hierarchy that has it.
func (c Cgroup) Folders() ([]string, error) {
	points, _, err := hierarchies()
	if err != nil {
		return nil, err
	}
	var folders []string
	for _, point := range points {
		folder := filepath.Join(point, c.Name)
		if _, err := os.Stat(folder); err == nil {
			folders = append(folders, folder)
		}
	}
	return folders, nil
}

// Remove kills all processes in the group and its children and removes them all.
func (c Cgroup) Remove(ctx context.Context) error {
	folders, err := c.Folders()
	if err != nil {
		return err
	}
	for {
		var errs []error
		for _, folder := range folders {
			errs = append(errs, killAll(folder), removeTree(folder))
		}
		err := errors.Join(errs...)
		if err == nil {
			return nil
		}
		// A killed process needs a moment to leave its group, and nothing tells when it has.
		select {
		case <-ctx.Done():
			return fmt.Errorf("remove cgroup %s: %w: %w", c.Name, context.Cause(ctx), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func killAll(folder string) error {
	return filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || entry.IsDir() || entry.Name() != "cgroup.procs" {
			return err
		}
		content, _ := os.ReadFile(path) // the group may have gone away meanwhile: nothing to kill
		for line := range strings.FieldsSeq(string(content)) {
			// 0 stands for a process of another pid namespace. The membership was read a moment ago: the window in
			// which a pid could come to mean another process is as small as the kernel's own cgroup.kill leaves it in v1.
			if pid, err := strconv.Atoi(line); err == nil && pid > 1 {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
		return nil
	})
}

// removeTree removes groups from the leaves up. Only folders are removed: the files in a cgroup go with it.
func removeTree(folder string) error {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, entry := range entries {
		if entry.IsDir() {
			errs = append(errs, removeTree(filepath.Join(folder, entry.Name())))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := unix.Rmdir(folder); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove %s: %w", folder, err)
	}
	return nil
}
