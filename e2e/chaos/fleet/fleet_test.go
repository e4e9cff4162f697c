package fleet

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPoolsAreThoseOfTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.toml")
	runners := []Runner{
		{Token: "aaaaaaaaa", Namespace: "one", Images: 2, Count: 3, IdleTime: time.Hour, Limit: 9},
		{Token: "bbbbbbbbb", Namespace: "two", Images: 1, Count: 4, IdleTime: 30 * time.Second},
	}
	require.NoError(t, Write(path, runners))
	pools, err := Pools(path)
	require.NoError(t, err)
	require.Len(t, pools, 3)
	require.Equal(t, "one", pools[0].Namespace)
	require.Equal(t, "two", pools[2].Namespace)
	require.NotEqual(t, pools[0].Name, pools[1].Name)
	require.Equal(t, 9, pools[1].Runner.Limit)
	require.Equal(t, 3, pools[1].Runner.Kubernetes.IdleCount)

	require.NoError(t, Write(path, runners[:1]))
	pools, err = Pools(path)
	require.NoError(t, err)
	require.Len(t, pools, 2)
}

// self stands for a command that is this process.
func self() *exec.Cmd { return &exec.Cmd{Process: &os.Process{Pid: os.Getpid()}} }

func TestUsageIsReadFromProc(t *testing.T) {
	u, err := parseUsage(
		"Name:\tidle count\nVmHWM:\t  2048 kB\nVmRSS:\t  1024 kB\nThreads:\t9\n",
		"77 (idle) count) S 1 77 77 0 -1 4194304 900 0 0 0 150 50 0 0 20 0 9 0 123 0 0",
	)
	require.NoError(t, err)
	require.Equal(t, Usage{RSS: 1 << 20, Peak: 2 << 20, CPU: 2 * time.Second}, u)

	_, err = parseUsage("", "77 (idlecount) S")
	require.Error(t, err)

	// This process has taken something of both.
	p := &Process{}
	p.cmd = self()
	u, err = p.Usage()
	require.NoError(t, err)
	require.Greater(t, u.RSS, int64(1<<20))
	require.GreaterOrEqual(t, u.Peak, u.RSS)
	require.Equal(t, os.Getpid(), p.cmd.Process.Pid)
}
