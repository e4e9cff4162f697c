package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/e2e/cluster"
)

// run executes the command with its files in a folder of their own, where no cluster is.
func run(t *testing.T, folder string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, problems bytes.Buffer
	cmd := newCommand()
	cmd.SetOut(&out)
	cmd.SetErr(&problems)
	cmd.SetArgs(append(args, "--folder", folder))
	err = cmd.ExecuteContext(t.Context())
	return out.String(), problems.String(), err
}

func TestStatusWithoutAClusterSaysHowToStartOne(t *testing.T) {
	stdout, _, err := run(t, t.TempDir(), "status")
	require.ErrorContains(t, err, "cluster up")
	require.Empty(t, stdout)

	stdout, _, err = run(t, t.TempDir(), "status", "-o", "json")
	require.ErrorContains(t, err, "is down", "the exit status tells scripts, in this format too")
	var status cluster.Status
	require.NoError(t, json.Unmarshal([]byte(stdout), &status))
	require.Equal(t, cluster.IsDown, status.State)

	_, _, err = run(t, t.TempDir(), "status", "-o", "yaml")
	require.ErrorContains(t, err, "yaml")
}

func TestLogs(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(folder, "logs"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "logs", "etcd.log"), []byte("one\ntwo\nthree\n"), 0o600))

	stdout, _, err := run(t, folder, "logs", "etcd", "-n", "2")
	require.NoError(t, err)
	require.Equal(t, "two\nthree\n", stdout)

	stdout, _, err = run(t, folder, "logs")
	require.NoError(t, err, "components without a log are left out")
	require.Equal(t, "==> etcd <==\none\ntwo\nthree\n", stdout)

	_, _, err = run(t, folder, "logs", "kubelet")
	require.ErrorContains(t, err, "kubelet")
	_, _, err = run(t, folder, "logs", "kube-proxy")
	require.ErrorContains(t, err, `no component "kube-proxy"`)
}

func TestWriteTable(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	var out bytes.Buffer
	require.NoError(t, writeTable(&out, cluster.Status{
		State: cluster.Degraded,
		Components: []cluster.ComponentStatus{
			{Component: cluster.Etcd, PID: 7, Started: now.Add(-90 * time.Second), Healthy: true, Log: "/l/etcd.log"},
			{Component: cluster.Kubelet, Problem: "does not run", Log: "/l/kubelet.log"},
		},
		Nodes: []cluster.NodeStatus{
			{Name: "idlecount-node", Problem: "NodeStatusUnknown", Pods: 2},
			{Name: "kwok-0", KWOK: true, Ready: true},
		},
	}, now))
	require.Equal(t, `COMPONENT   PID   AGE   HEALTH         LOG
etcd        7     90s   ok             /l/etcd.log
kubelet     -     -     does not run   /l/kubelet.log

NODE             KIND   PODS   HEALTH
idlecount-node   real   2      NodeStatusUnknown
kwok-0           kwok   0      ok
`, out.String())
}

func TestUpRefusesWhatItDoesNotUnderstand(t *testing.T) {
	_, _, err := run(t, t.TempDir(), "up", "three")
	require.Error(t, err)
	_, _, err = run(t, t.TempDir(), "up", "--kwok", "many")
	require.ErrorContains(t, err, "many")
}
