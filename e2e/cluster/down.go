package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"idlecount.dev/idlecount/e2e/cluster/internal/host"
	"idlecount.dev/idlecount/e2e/cluster/internal/process"
)

// downTimeout bounds the removal of a cluster.
const downTimeout = 2 * time.Minute

// Down stops the cluster and removes everything that Up brought onto the machine but the programs it built and the
// Debian packages. Nothing there is not an error. Of the options only Folder and Progress matter.
func Down(ctx context.Context, options Options) error {
	if os.Geteuid() != 0 {
		return errors.New("the local cluster belongs to root: run this as root, for example with sudo")
	}
	release, err := lockCluster(ctx, options.progress())
	if err != nil {
		return err
	}
	defer release()
	l := options.layout()
	if options.Folder == "" {
		folder, err := owner()
		if err != nil {
			return err
		}
		if folder != "" {
			l.folder = folder
		}
	}
	ctx, cancel := context.WithTimeout(ctx, downTimeout)
	defer cancel()
	if err := tearDown(ctx, l); err != nil {
		return fmt.Errorf("take the local cluster down: %w", err)
	}
	left, err := leftovers(ctx, l)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		return fmt.Errorf("the local cluster is down, but this is still there:\n  %s", strings.Join(left, "\n  "))
	}
	return nil
}

// tearDown ends everything of the cluster and removes its traces. Each step works whatever the others found. The
// caller holds the lock.
func tearDown(ctx context.Context, l layout) error {
	// If this is cut off in the middle, what is left must not be taken for a cluster to repair.
	if s, err := readState(l); err != nil {
		return err
	} else if s != nil && s.Complete {
		s.Complete = false
		if err := s.write(l); err != nil {
			return err
		}
	}
	if err := killProcesses(ctx, l); err != nil {
		return err // what still runs would only make new traces
	}
	var errs []error
	errs = append(errs, cgroup().Remove(ctx))
	for _, folder := range []string{l.folder, runtimeFolder} {
		errs = append(errs, host.UnmountBelow(folder))
	}
	errs = append(errs, network().Remove(ctx))
	// Nothing is removed while something is still mounted there: that would delete what the mount shows.
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return removeFiles(l)
}

// killProcesses ends the cluster's processes with SIGKILL: what they might still want to save is removed anyway.
func killProcesses(ctx context.Context, l layout) error {
	// The kubelet and containerd first, which would start containers again or clean up after them.
	for _, c := range []Component{Kubelet, Containerd} {
		if err := readRecord(l, c).Kill(ctx); err != nil {
			return err
		}
	}
	// By folder rather than by record: a process whose starter died before it wrote the record, and containerd's shims.
	// Until none is left, since a shim may have been about to start.
	for {
		running, err := process.BelowFolder(l.programs())
		if err != nil {
			return err
		}
		if len(running) == 0 {
			return nil
		}
		for _, id := range running {
			if err := id.Kill(ctx); err != nil {
				return err
			}
		}
	}
}

// removeFiles removes the cluster's files, and the few that the kubelet and CNI put elsewhere.
func removeFiles(l layout) error {
	strays, err := strayFiles(l)
	errs := []error{err}
	// The state file, which is the last of the temporary ones, goes last: until then the next Up knows what to clean up.
	for _, path := range slices.Concat(strays, runtimeFiles(), l.temporary()) {
		errs = append(errs, os.RemoveAll(path))
	}
	// Folders that CNI made; they stay if there is something else in them.
	for _, folder := range []string{"/var/lib/cni/results", "/var/lib/cni"} {
		_ = os.Remove(folder)
	}
	return errors.Join(append(errs, os.RemoveAll(ownerFile()))...)
}

// kubeletFolder is the kubelet's default --root-dir. The socket for device plugins is in it whatever the flag says.
const kubeletFolder = "/var/lib/kubelet"

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// runtimeFiles leaves the lock files: somebody may hold them.
func runtimeFiles() []string {
	entries, err := os.ReadDir(runtimeFolder)
	if err != nil {
		return nil
	}
	var paths []string
	for _, entry := range entries {
		path := filepath.Join(runtimeFolder, entry.Name())
		if filepath.Ext(entry.Name()) != ".lock" && path != ownerFile() {
			paths = append(paths, path)
		}
	}
	return paths
}

// strayFiles are files of ours in folders that can't be configured.
func strayFiles(l layout) ([]string, error) {
	var found []string
	// The kubelet links each container's log here.
	links, err := filepath.Glob("/var/log/containers/*.log")
	if err != nil {
		return nil, err
	}
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && strings.HasPrefix(target, l.folder+"/") {
			found = append(found, link)
		}
	}
	// CNI keeps the result of each pod's network set-up, by the network's name.
	results, err := filepath.Glob("/var/lib/cni/results/idlecount-*")
	found = append(found, results...)
	if s, stateErr := readState(l); stateErr == nil && s != nil && s.OwnsKubeletFolder && exists(kubeletFolder) {
		found = append(found, kubeletFolder)
	}
	return found, err
}

// leftovers names what is still on the machine of a cluster that was taken down.
func leftovers(ctx context.Context, l layout) ([]string, error) {
	var left []string
	running, err := process.BelowFolder(l.programs())
	if err != nil {
		return nil, err
	}
	for _, id := range running {
		left = append(left, fmt.Sprintf("process %d (%s)", id.PID, process.Name(id.PID)))
	}
	folders, err := cgroup().Folders()
	if err != nil {
		return nil, err
	}
	left = append(left, folders...)
	for _, folder := range []string{l.folder, runtimeFolder} {
		points, err := host.MountsBelow(folder)
		if err != nil {
			return nil, err
		}
		for _, point := range points {
			left = append(left, "mount "+point)
		}
	}
	left = append(left, network().Leftovers(ctx)...)
	strays, err := strayFiles(l)
	left = append(left, strays...)
	for _, path := range append(l.temporary(), runtimeFiles()...) {
		if exists(path) {
			left = append(left, path)
		}
	}
	return left, err
}

// Leftovers names what of the cluster is on the machine; after Down that is nothing.
func Leftovers(ctx context.Context, options Options) ([]string, error) {
	return leftovers(ctx, options.layout())
}
