package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// lockInterval is how often a taken lock is tried again: flock(2) can't be waited for together with a context.
const lockInterval = 100 * time.Millisecond

// Lock takes a lock of the whole machine by name, shared or exclusive, and waits for it if need be. waiting is called
// once before that. The lock ends with release or with the process.
//
// "cluster" is what Up, Down and the faults hold while they change something. Tests use others.
func Lock(ctx context.Context, name string, exclusive bool, waiting func()) (release func(), err error) {
	if err := os.MkdirAll(runtimeFolder, 0o755); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(runtimeFolder, name+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	mode := unix.LOCK_SH
	if exclusive {
		mode = unix.LOCK_EX
	}
	for first := true; ; first = false {
		err := unix.Flock(int(file.Fd()), mode|unix.LOCK_NB)
		if err == nil {
			return func() { file.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", file.Name(), err), file.Close())
		}
		if first && waiting != nil {
			waiting()
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("wait for the lock %s: %w", file.Name(), context.Cause(ctx)), file.Close())
		case <-time.After(lockInterval):
		}
	}
}

func lockCluster(ctx context.Context, progress io.Writer) (release func(), err error) {
	return Lock(ctx, "cluster", true, func() {
		fmt.Fprintln(progress, "another process is changing the local cluster, waiting for it…")
	})
}

// ownerFile names the folder of the machine's one cluster.
func ownerFile() string { return filepath.Join(runtimeFolder, "folder") }

// owner returns the folder of the cluster that was made on this machine since its boot, "" if there is none.
func owner() (string, error) {
	content, err := os.ReadFile(ownerFile())
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(content)), err
}

// HoldsLock says whether this very process holds the lock of that name: it would wait for itself.
func HoldsLock(name string) bool {
	info, err := os.Stat(filepath.Join(runtimeFolder, name+".lock"))
	if err != nil {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return false
	}
	locks, err := os.ReadFile("/proc/locks")
	return err == nil && holdsLock(string(locks), os.Getpid(), stat.Ino)
}

// holdsLock reads proc_locks(5): "1: FLOCK ADVISORY READ <pid> <device>:<inode> 0 EOF". A line with "->" is a waiter.
func holdsLock(locks string, pid int, inode uint64) bool {
	for line := range strings.Lines(locks) {
		fields := strings.Fields(line)
		if len(fields) < 6 || fields[1] != "FLOCK" || fields[4] != strconv.Itoa(pid) {
			continue
		}
		if i := strings.LastIndex(fields[5], ":"); fields[5][i+1:] == strconv.FormatUint(inode, 10) {
			return true
		}
	}
	return false
}
