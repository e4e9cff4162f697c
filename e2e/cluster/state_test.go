package cluster

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"idlecount.dev/idlecount/e2e/cluster/internal/process"
)

func TestReplaceReason(t *testing.T) {
	good := state{Complete: true, Boot: "b1", Fingerprint: "f1"}
	for name, c := range map[string]struct {
		change func(*state)
		want   string
	}{
		"a cluster of this checkout and boot is kept": {func(*state) {}, ""},
		"one that was not completed":                  {func(s *state) { s.Complete = false }, "its creation was interrupted"},
		"one of an earlier boot":                      {func(s *state) { s.Boot = "b0" }, "the machine was restarted"},
		"one of another version":                      {func(s *state) { s.Fingerprint = "f0" }, "it was made by another version of idlecount"},
	} {
		t.Run(name, func(t *testing.T) {
			s := good
			c.change(&s)
			require.Equal(t, c.want, replaceReason(s, "b1", "f1"))
		})
	}
}

func TestStateThatCannotBeReadIsACclusterToReplace(t *testing.T) {
	l := layout{folder: t.TempDir()}
	none, err := readState(l)
	require.NoError(t, err)
	require.Nil(t, none)

	require.NoError(t, os.WriteFile(l.state(), []byte(`{"complete": "yes`), 0o600))
	broken, err := readState(l)
	require.NoError(t, err)
	require.NotEmpty(t, replaceReason(*broken, "b1", "f1"))
}

func TestStateAndRecordsAreReadBack(t *testing.T) {
	l := layout{folder: t.TempDir()}
	want := &state{Complete: true, Boot: "b", Fingerprint: "f", KWOKNodes: 3, Definitions: map[Component]definition{Etcd: {Program: "/p", Args: []string{"-a"}}}}
	require.NoError(t, want.write(l))
	got, err := readState(l)
	require.NoError(t, err)
	require.Equal(t, want, got)

	require.False(t, readRecord(l, Etcd).Alive(), "no record is a process that does not run")
	me, err := process.Of(os.Getpid())
	require.NoError(t, err)
	require.NoError(t, writeRecord(l, Etcd, me))
	require.Equal(t, me, readRecord(l, Etcd))
	require.NoError(t, os.WriteFile(l.record(Etcd), []byte(`{"pid": 1`), 0o600))
	require.False(t, readRecord(l, Etcd).Alive(), "a record that was cut off is none")
}

func TestComponentsStartAfterWhatTheyNeed(t *testing.T) {
	definitions := define(layout{folder: "/c"}, programs{})
	all := Components()
	require.Len(t, definitions, len(all))
	for i, component := range all {
		require.Contains(t, definitions, component)
		for _, need := range component.needs() {
			require.Contains(t, all[:i], need)
		}
		parsed, err := ParseComponent(string(component))
		require.NoError(t, err)
		require.Equal(t, component, parsed)
	}
	_, err := ParseComponent("kube-proxy")
	require.ErrorContains(t, err, "kube-apiserver")
}

func TestDefinitionsTakeNoEnvironmentAlong(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://proxy.example.com")
	for component, d := range define(layout{folder: "/c"}, programs{"containerd": "/c/bin/x/containerd"}) {
		require.NotContains(t, strings.Join(d.Env, " "), "proxy.example.com", component)
		require.True(t, slices.ContainsFunc(d.Env, func(e string) bool { return strings.HasPrefix(e, "PATH=") }), component)
	}
}

func TestNodeProblem(t *testing.T) {
	ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue}
	for name, c := range map[string]struct {
		node corev1.Node
		want string
	}{
		"a node that says nothing yet": {corev1.Node{}, "has not reported yet"},
		"a ready one":                  {corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{ready}}}, ""},
		"one that is not": {
			corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady", Message: "no network"}}}},
			"KubeletNotReady: no network",
		},
		"a ready one that is still tainted": {
			corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "node.kubernetes.io/not-ready", Effect: corev1.TaintEffectNoSchedule}}}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{ready}}},
			"taint node.kubernetes.io/not-ready:NoSchedule",
		},
		"a KWOK node's own taint is no problem": {
			corev1.Node{Spec: kwokNode(0).Spec, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{ready}}},
			"",
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, nodeProblem(c.node))
		})
	}
}

func TestKWOKTolerationMatchesTheNodesTaint(t *testing.T) {
	toleration := KWOKToleration()
	for _, taint := range kwokNode(7).Spec.Taints {
		require.Equal(t, []any{taint.Key, taint.Value, taint.Effect}, []any{toleration.Key, toleration.Value, toleration.Effect})
	}
	for key, value := range KWOKNodeSelector() {
		require.Equal(t, value, kwokNode(7).Labels[key])
	}
}

func TestHoldsLock(t *testing.T) {
	const locks = `1: POSIX  ADVISORY  WRITE 100 08:01:77 0 EOF
2: FLOCK  ADVISORY  READ 200 08:01:88 0 EOF
2: -> FLOCK  ADVISORY  WRITE 300 08:01:88 0 EOF
`
	require.True(t, holdsLock(locks, 200, 88))
	require.False(t, holdsLock(locks, 200, 8), "the inode must be the whole number")
	require.False(t, holdsLock(locks, 300, 88), "who waits does not hold")
	require.False(t, holdsLock(locks, 100, 77), "another kind of lock")
}

func TestTail(t *testing.T) {
	path := t.TempDir() + "/log"
	require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("filler\n", 100_000)+"a\nb\n"), 0o600))
	require.Equal(t, "filler\na\nb", tail(path, 3))
	require.Contains(t, tail(path+"x", 3), "no such file")
}
