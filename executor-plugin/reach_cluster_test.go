package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"idlecount.dev/idlecount/e2e/runner"
	"idlecount.dev/idlecount/executor-plugin/job"
	"idlecount.dev/idlecount/executor-plugin/kube"
	"idlecount.dev/idlecount/pool/claim"
)

// stages counts the parts of a job that ran a script.
func stages(result runner.Result) int {
	n := 0
	for _, call := range result.Calls {
		if !slices.Contains([]string{"config", "prepare", "cleanup"}, call.Stage) {
			n++
		}
	}
	return n
}

func TestAJobIsOneExec(t *testing.T) {
	g := newGround(t)
	g.idle(t, 1)
	w := gated(t, g)
	// Large both ways: frames of the way there and back must not care.
	job := script("#"+strings.Repeat("x", 3<<20), "head -c 20000000 /dev/zero | tr '\\0' y; echo", "echo end; exit 9")
	job.AfterScript = []string{"echo after"}
	result := g.runner.Run(t.Context(), job, nil)
	require.Equal(t, 9, result.ExitCode, "%s", tailOf(result.Log))
	require.Equal(t, 2000000, bytes.Count(result.Output("build_script"), []byte("yyyyyyyyyy")))
	require.Equal(t, 1, w.count("exec"), "the handshake")
	require.Equal(t, stages(result), w.count("portforward"))
	require.GreaterOrEqual(t, stages(result), 4)
}

func tailOf(log []byte) []byte { return log[max(0, len(log)-4000):] }

// Whoever may not forward ports gets by with execs, and pays for the try once a job.
func TestWithoutTheRightToForwardPorts(t *testing.T) {
	g := newGround(t)
	g.idle(t, 1)
	role, err := g.client.RbacV1().Roles(g.namespace).Get(t.Context(), "driver", metav1.GetOptions{})
	require.NoError(t, err)
	role.Rules = slices.DeleteFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "pods/portforward") })
	require.Len(t, role.Rules, len(claim.Rules())-1)
	_, err = g.client.RbacV1().Roles(g.namespace).Update(t.Context(), role, metav1.UpdateOptions{})
	require.NoError(t, err)
	w := gated(t, g)
	result := g.run(t, script("echo hi"))
	require.Equal(t, runner.Success, result.Status)
	require.Equal(t, 1, w.count("portforward"))
	require.Equal(t, 1+stages(result), w.count("exec"))
	require.NotContains(t, string(result.Log), "portforward")
}

// A server without the subresource, or something on the way that doesn't let it through or doesn't answer.
func TestAWayThatIsClosed(t *testing.T) {
	for sentence, closeIt := range map[string]func(w *gate){
		"refused": func(w *gate) { w.set("portforward", "") },
		"silent":  func(w *gate) { w.set("", "portforward") },
	} {
		t.Run(sentence, func(t *testing.T) {
			g := newGround(t)
			g.idle(t, 1)
			w := gated(t, g)
			closeIt(w)
			result := g.run(t, script("echo hi"))
			require.Equal(t, runner.Success, result.Status)
			require.Equal(t, 1, w.count("portforward"))
			require.Equal(t, 1+stages(result), w.count("exec"))
		})
	}
}

// Streams are cut again and again while a script counts: every number comes once, over the one way and the other.
func TestCutsUnderAScript(t *testing.T) {
	const lines, cuts = 700, 6
	for sentence, meanwhile := range map[string]func(w *gate){
		"port-forwards come back":    func(*gate) {},
		"then execs are all that is": func(w *gate) { w.set("portforward", "") },
	} {
		t.Run(sentence, func(t *testing.T) {
			g := newGround(t)
			g.idle(t, 1)
			w := gated(t, g)
			var live []*trigger
			broken := 0
			for i := range cuts {
				live = append(live, &trigger{word: fmt.Sprintf("line %d end", 100*(i+1)), then: func() {
					broken += w.cut("portforward") + w.cut("exec")
					if i == cuts/2 {
						meanwhile(w)
					}
				}})
			}
			job := script(fmt.Sprintf("i=0; while [ $i -lt %d ]; do echo line $i end; i=$((i+1)); sleep 0.01; done; exit 5", lines))
			result := g.runner.Run(t.Context(), job, all(live))
			require.Equal(t, 5, result.ExitCode, "%s", result.Log)
			require.GreaterOrEqual(t, broken, cuts)
			require.GreaterOrEqual(t, w.count("portforward"), stages(result)+cuts/2)
			var want, got strings.Builder
			for i := range lines {
				fmt.Fprintf(&want, "line %d end\n", i)
			}
			for line := range strings.Lines(string(result.Output("build_script"))) {
				if strings.HasPrefix(line, "line ") {
					got.WriteString(line)
				}
			}
			require.Equal(t, want.String(), got.String())
			require.NotContains(t, string(result.Log), "the connection to the script broke", "nobody was away for long")
		})
	}
}

// What a kubelet says of a port comes out of Read, and at once.
func TestAPortThatNobodyListensOn(t *testing.T) {
	g := newGround(t)
	pod := g.idle(t, 1)[0]
	client, err := connect(Call{Access: kube.Access{Kubeconfig: g.kubeconfig}}, g.settings, func(string) {})
	require.NoError(t, err)
	conn, err := client.Forward(t.Context(), pod.Name, 40001)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	_, err = conn.Read(make([]byte, 1))
	require.ErrorContains(t, err, "connection refused")
	_, err = client.Forward(t.Context(), "no-such-pod", 40001)
	require.ErrorContains(t, err, `pods "no-such-pod" not found`)
}

// all writes to each.
type all []*trigger

func (a all) Write(p []byte) (int, error) {
	for _, w := range a {
		if _, err := w.Write(p); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// A job finds the ports in its pod, and gets nothing from them but PID 1's half of a proof.
func TestAJobThatKnocksAtTheDoors(t *testing.T) {
	g := newGround(t)
	g.idle(t, 1)
	g.runner.TempDir = t.TempDir()
	work := script(
		`doors=$(while read -r _ local _ state _; do [ "$state" != 0A ] || case $local in 0100007F:*) echo $((16#${local#*:}));; esac; done < /proc/net/tcp)`,
		`for door in $doors; do`,
		`  exec 3<>/dev/tcp/127.0.0.1/$door; (for i in 1 2 3 4 5 6 7 8; do echo '{"command":"run","id":"a"}'; done) >&3 2>/dev/null || true`, // it may be shut meanwhile
		`  echo "door: $(cat <&3 2>/dev/null | wc -c) bytes"; exec 3>&-`,
		`done`,
		`cat /idlecount/run/claim; tr '\0' ' ' < /proc/1/environ; tr '\0' ' ' < /proc/1/cmdline; cat /idlecount/run/*/* 2>/dev/null || true; echo the end`)
	var key string
	g.runner.Observe = func(stage string, _ int) {
		if stage == "build_script" {
			open := noteOf(t, g, work.ID)
			key = fmt.Sprintf("%x", open.key.Seed())
		}
	}
	result := g.run(t, work)
	require.Equal(t, runner.Success, result.Status)
	output := string(result.Output("build_script"))
	require.Equal(t, 2, strings.Count(output, "\ndoor: "), "build's and helper's")
	require.Equal(t, 2, strings.Count(output, "\ndoor: 96 bytes\n"), "a nonce and a signature")
	require.Contains(t, output, "the end")
	require.Len(t, key, 64)
	require.NotContains(t, string(result.Log), key)
}

// noteOf reads the note of the only job that runs.
func noteOf(t *testing.T, g *ground, id int64) doors {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(g.runner.TempDir, "*", "idlecount-pod.json"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	pod, open := found(job.Env{"JOB_RESPONSE_FILE": files[0]}, strconv.FormatInt(id, 10), g.namespace)
	require.NotNil(t, pod)
	return open
}
