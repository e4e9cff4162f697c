package cluster_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"idlecount.dev/idlecount/e2e/cluster"
	"idlecount.dev/idlecount/e2e/cluster/clustertest"
	"idlecount.dev/idlecount/e2e/cluster/internal/process"
)

// destructiveVariable must be set for tests that take the machine's cluster down, with all that others have in it.
const destructiveVariable = "IDLECOUNT_CLUSTER_DESTRUCTIVE"

// destructive skips the test unless it was asked for, and leaves a cluster behind as it found one.
func destructive(t *testing.T) {
	t.Helper()
	if os.Getenv(destructiveVariable) != "1" {
		t.Skipf("takes the machine's local cluster down: only with %s=1", destructiveVariable)
	}
	if os.Geteuid() != 0 {
		t.Skip("the local cluster needs root")
	}
	clustertest.Alone(t)
	t.Cleanup(func() {
		if t.Failed() {
			for _, component := range cluster.Components() {
				log, err := cluster.ReadLog(cluster.Options{}, component, 15)
				t.Logf("%s %v\n%s", component, err, log)
			}
		}
	})
	before, err := cluster.ReadStatus(t.Context(), cluster.Options{})
	require.NoError(t, err)
	if before.State == cluster.IsDown {
		return
	}
	kwok := len(slices.DeleteFunc(before.Nodes, func(n cluster.NodeStatus) bool { return !n.KWOK }))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute) // the test's own is over
		defer cancel()
		_, err := cluster.Up(ctx, cluster.Options{KWOKNodes: &kwok})
		require.NoError(t, err)
	})
}

func up(t *testing.T, options cluster.Options) (*cluster.Cluster, string) {
	t.Helper()
	var progress bytes.Buffer
	options.Progress = &progress
	c, err := cluster.Up(within(t, 5*time.Minute), options)
	require.NoError(t, err, progress.String())
	return c, progress.String()
}

func down(t *testing.T) {
	t.Helper()
	require.NoError(t, cluster.Down(within(t, 2*time.Minute), cluster.Options{}))
}

func TestDownLeavesTheMachineAsUpFoundIt(t *testing.T) {
	destructive(t)
	down(t)
	before := machine(t)

	c, _ := up(t, cluster.Options{KWOKNodes: new(1)})
	config, err := c.RESTConfig()
	require.NoError(t, err)
	client := clientset(t, config)
	image := probeReference(t, c)
	for _, name := range []string{"one", "two"} {
		pod := probePod(image)
		pod.Name = name
		running(t, client, "default", pod)
	}
	require.NotEqual(t, before, machine(t), "or this test looks at nothing")
	down(t)
	require.Equal(t, before, machine(t))

	t.Run("and a second time does nothing", func(t *testing.T) {
		down(t)
		require.Equal(t, before, machine(t))
	})
	t.Run("and says so", func(t *testing.T) {
		status, err := cluster.ReadStatus(t.Context(), cluster.Options{})
		require.NoError(t, err)
		require.Equal(t, cluster.IsDown, status.State)
		_, err = cluster.Find(t.Context())
		require.ErrorIs(t, err, cluster.ErrNotRunning)
	})
}

// machine describes all that a cluster may leave behind, by other means than Down's own.
func machine(t *testing.T) map[string][]string {
	t.Helper()
	list := func(command ...string) []string {
		out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).Output()
		require.NoError(t, err, command)
		var lines []string
		for line := range strings.Lines(string(out)) {
			line = regexp.MustCompile(`\[\d+:\d+\]|^#.*`).ReplaceAllString(strings.TrimSpace(line), "") // counters, times
			lines = append(lines, line)
		}
		slices.Sort(lines)
		return lines
	}
	files := func(patterns ...string) []string {
		var all []string
		for _, pattern := range patterns {
			found, err := filepath.Glob(pattern)
			require.NoError(t, err)
			all = append(all, found...)
		}
		return all
	}
	return map[string][]string{
		"mounts":     list("findmnt", "--raw", "--noheadings", "--output", "TARGET,FSTYPE"),
		"interfaces": list("ip", "-brief", "address"),
		"iptables":   list("iptables-save"),
		"ip6tables":  list("ip6tables-save"),
		"cgroups":    files("/sys/fs/cgroup/*", "/sys/fs/cgroup/*/*"),
		"files": files("/run/*", "/run/idlecount-cluster/*", "/var/lib/*", "/var/lib/idlecount-cluster/*", "/var/lib/kubelet/*",
			"/var/lib/cni/*", "/var/log/containers/*", "/var/log/pods/*", "/etc/cni/*", "/opt/*"),
	}
}

func TestUpReplacesWhatAKilledUpLeft(t *testing.T) {
	destructive(t)
	// Killed at different moments of a start: before and after the first pieces run.
	for _, component := range []cluster.Component{cluster.Etcd, cluster.Kubelet} {
		t.Run("killed when it had started "+string(component), func(t *testing.T) {
			down(t)
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHelperUp$")
			cmd.Env = append(os.Environ(), helperVariable+"=1")
			var output bytes.Buffer
			cmd.Stdout, cmd.Stderr = &output, &output
			require.NoError(t, cmd.Start())
			t.Cleanup(func() { t.Log(output.String()) })
			record := filepath.Join(cluster.DefaultFolder, "run", string(component)+".json")
			require.Eventually(t, func() bool {
				_, err := os.Stat(record)
				return err == nil
			}, 2*time.Minute, time.Millisecond)
			require.NoError(t, cmd.Process.Kill())
			require.Error(t, cmd.Wait(), "it was done before it could be killed")

			_, err := cluster.Find(t.Context())
			require.ErrorIs(t, err, cluster.ErrNotRunning)
			_, progress := up(t, cluster.Options{})
			require.Contains(t, progress, "its creation was interrupted")
			pids(t)
		})
	}
}

// helperVariable turns TestHelperUp from a test into a process that can be killed.
const helperVariable = "IDLECOUNT_HELPER_UP"

func TestHelperUp(t *testing.T) {
	if os.Getenv(helperVariable) == "" {
		t.Skip("only run by other tests")
	}
	_, err := cluster.Up(t.Context(), cluster.Options{})
	require.NoError(t, err)
}

func TestTwoUpsAtOnceMakeOneCluster(t *testing.T) {
	destructive(t)
	down(t)
	var wg sync.WaitGroup
	errs := make([]error, 3)
	for i := range errs {
		wg.Go(func() {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHelperUp$")
			cmd.Env = append(os.Environ(), helperVariable+"=1")
			errs[i] = cmd.Run()
		})
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	first := pids(t)
	_, progress := up(t, cluster.Options{})
	require.Empty(t, progress)
	require.Equal(t, first, pids(t))
}

func TestStalePidsAreNeverKilled(t *testing.T) {
	destructive(t)
	down(t)
	innocent := exec.CommandContext(t.Context(), "sleep", "600")
	require.NoError(t, innocent.Start())
	id, err := process.Of(innocent.Process.Pid)
	require.NoError(t, err)
	stale := id
	stale.StartTicks--
	// What a crash or a reboot leaves: a complete state, and records whose pids mean something else by now.
	folder := cluster.DefaultFolder
	writeFile(t, filepath.Join(folder, "cluster.json"), map[string]any{"complete": true, "boot": id.Boot})
	for _, component := range cluster.Components() {
		writeFile(t, filepath.Join(folder, "run", string(component)+".json"), stale)
	}
	status, err := cluster.ReadStatus(t.Context(), cluster.Options{})
	require.NoError(t, err)
	require.Equal(t, cluster.IsDown, status.State)
	up(t, cluster.Options{})
	require.True(t, id.Alive())
	require.NoError(t, id.Kill(t.Context()))
	_ = innocent.Wait()
}

func writeFile(t *testing.T, path string, value any) {
	t.Helper()
	content, err := json.Marshal(value)
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, content, 0o600))
}

func TestAClusterFromBeforeARebootIsReplaced(t *testing.T) {
	destructive(t)
	up(t, cluster.Options{})
	before := pids(t)
	path := filepath.Join(cluster.DefaultFolder, "cluster.json")
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	var state map[string]any
	require.NoError(t, json.Unmarshal(content, &state))
	state["boot"] = "an earlier one"
	writeFile(t, path, state)

	_, progress := up(t, cluster.Options{})
	require.Contains(t, progress, "the machine was restarted")
	for component, pid := range pids(t) {
		require.NotEqual(t, before[component], pid)
	}
}

func TestAClusterThatCannotBeRepairedIsReplaced(t *testing.T) {
	destructive(t)
	c, _ := up(t, cluster.Options{})
	require.NoError(t, c.Kill(t.Context(), cluster.APIServer))
	require.NoError(t, os.WriteFile(filepath.Join(cluster.DefaultFolder, "pki", "kube-apiserver.crt"), []byte("no certificate"), 0o600))
	_, progress := up(t, cluster.Options{})
	require.Contains(t, progress, "it could not be repaired")
	require.Contains(t, progress, "kube-apiserver")
	pids(t)
}

func TestAnAddressThatIsTakenIsNamed(t *testing.T) {
	destructive(t)
	down(t)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:5990")
	require.NoError(t, err)
	_, err = cluster.Up(within(t, 5*time.Minute), cluster.Options{})
	require.ErrorContains(t, err, "registry needs the address 127.0.0.1:5990, which the process "+process.Name(os.Getpid()))
	require.NoError(t, listener.Close())
	up(t, cluster.Options{})
}

func TestThereIsOneClusterOnAMachine(t *testing.T) {
	destructive(t)
	up(t, cluster.Options{})
	_, err := cluster.Up(t.Context(), cluster.Options{Folder: t.TempDir()})
	require.ErrorContains(t, err, cluster.DefaultFolder)
}

func TestKWOKNodesFollowTheirNumber(t *testing.T) {
	destructive(t)
	c, _ := up(t, cluster.Options{KWOKNodes: new(2)})
	config, err := c.RESTConfig()
	require.NoError(t, err)
	client := clientset(t, config)
	nodes := func() (names []string) {
		list, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{LabelSelector: "type=kwok"})
		require.NoError(t, err)
		for _, node := range list.Items {
			names = append(names, node.Name)
		}
		return names
	}
	require.Equal(t, []string{"kwok-0", "kwok-1"}, nodes())
	pod := probePod("never/pulled:1")
	pod.Spec.NodeName = "kwok-1"
	_, err = client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)

	up(t, cluster.Options{})
	require.Len(t, nodes(), 2, "no number means as it is")
	up(t, cluster.Options{KWOKNodes: new(1)})
	require.Equal(t, []string{"kwok-0"}, nodes())
	pods, err := client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Empty(t, pods.Items, "the pods of a node go with it")
	up(t, cluster.Options{KWOKNodes: new(0)})
	require.Empty(t, nodes())
	require.NotContains(t, pids(t), cluster.KWOK)
	_, err = cluster.Up(t.Context(), cluster.Options{KWOKNodes: new(-1)})
	require.ErrorContains(t, err, "negative")
}

func TestOnlyRootMayChangeTheCluster(t *testing.T) {
	if os.Getenv(helperVariable) != "" {
		_, err := cluster.Up(t.Context(), cluster.Options{})
		require.ErrorContains(t, err, "sudo")
		require.ErrorContains(t, cluster.Down(t.Context(), cluster.Options{}), "sudo")
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestOnlyRootMayChangeTheCluster$")
	if os.Geteuid() == 0 {
		folder := t.TempDir()
		require.NoError(t, os.Chmod(filepath.Dir(folder), 0o755))
		program := filepath.Join(folder, "test")
		content, err := os.ReadFile(os.Args[0])
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(program, content, 0o755))
		cmd.Path, cmd.Dir = program, "/"
		const nobody = 65534
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	cmd.Env = append(os.Environ(), helperVariable+"=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
}
