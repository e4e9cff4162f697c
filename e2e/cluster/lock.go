package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
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
