package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"idlecount.dev/idlecount/e2e/cluster"
	"idlecount.dev/idlecount/e2e/cluster/clustertest"
	"idlecount.dev/idlecount/e2e/runner"
	"idlecount.dev/idlecount/entrypoint/proof"
	"idlecount.dev/idlecount/entrypoint/wire"
	"idlecount.dev/idlecount/executor-plugin/kube"
	"idlecount.dev/idlecount/factory"
)

func TestAWarmJob(t *testing.T) {
	g := newGround(t)
	idle := g.idle(t, 1)[0]
	job := script("echo greetings from $HOSTNAME", "printf 'a\\0b\\377'", "echo to stderr >&2")
	job.AfterScript = []string{"echo after"}
	result := g.run(t, job)
	require.Equal(t, runner.Success, result.Status)
	log := string(result.Log)
	require.Contains(t, log, "idlecount: claimed warm pod "+g.namespace+"/"+idle.Name+" on node "+idle.Spec.NodeName+", idle for ")
	require.Contains(t, log, "greetings from "+idle.Name)
	require.Contains(t, log, "a\x00b\xff")
	require.Contains(t, log, "to stderr")
	require.Contains(t, log, "after")
	require.NotContains(t, log, "glrt-")
	for _, pod := range g.ofJob(t, job.ID) {
		require.NotNil(t, pod.DeletionTimestamp, "cleanup deletes the pod")
	}
}

func TestARecordedJobRunsInAWarmPod(t *testing.T) {
	g := newGround(t)
	g.idle(t, 1)
	recording, err := runner.LoadRecording("job-102", runner.Changes{ID: id.Add(1), Image: g.images["job-bash"]})
	require.NoError(t, err)
	result := g.run(t, recording)
	require.Equal(t, runner.ScriptFailure, result.FailureReason)
	require.Equal(t, 7, result.ExitCode)
	require.Contains(t, string(result.Log), "claimed warm pod")
}

func TestAJobWhoseImageIsNotInThePoolSaysSoAndRunsCold(t *testing.T) {
	g := newGround(t)
	job := script("echo cold; cat /proc/1/comm")
	job.Image = g.images["job-busybox"]
	result := g.run(t, job)
	require.Equal(t, runner.Success, result.Status)
	log := string(result.Log)
	require.Contains(t, log, "idlecount: no warm pod: image "+job.Image+" is not among the runner's idle_images; making one")
	require.Contains(t, log, "idlecount: made cold pod ")
	require.Contains(t, log, "cold\nentrypoint")
}

func TestWhyThereIsNoWarmPod(t *testing.T) {
	g := newGround(t)
	job := script("true")
	require.Contains(t, string(g.run(t, job).Log), "no warm pod: pool "+factory.PoolName(g.settings, g.shape(t))+" has no pods; `idlecount status` says why")
	job = script("true")
	job.User = "1000"
	require.Contains(t, string(g.run(t, job).Log), "differ from what the job asks for (user)")
}

func TestServicesAreReachableAndGetTheirVariables(t *testing.T) {
	g := newGround(t)
	job := script("for i in 1 2 3 4 5 6 7 8 9 10; do cat < /dev/tcp/web/8080 && break; sleep 0.3; done")
	job.Services = []runner.Service{{
		Name: g.images["job-busybox"], Alias: "web", Entrypoint: []string{"/bin/sh", "-c", `while :; do echo "word: $WORD" | nc -l -p 8080; done`},
		Variables: []runner.Variable{{Key: "WORD", Value: "s3cr3t"}},
	}}
	kept := make(chan []corev1.Pod, 1)
	g.runner.Observe = func(stage string, _ int) {
		if stage == "build_script" {
			kept <- g.ofJob(t, job.ID)
		}
	}
	result := g.run(t, job)
	require.Equal(t, runner.Success, result.Status)
	require.Contains(t, string(result.Log), "word: s3cr3t")
	pods := <-kept
	require.Len(t, pods, 1)
	require.NotContains(t, pods[0].String(), "s3cr3t", "no secret is in a pod")
}

// prepare was killed after it had made the pod and before it made what belongs to it.
func TestPrepareCompletesThePodOfAnEarlierTry(t *testing.T) {
	g := newGround(t)
	job := script("for i in 1 2 3 4 5 6 7 8 9 10; do cat < /dev/tcp/web/8080 && break; sleep 0.3; done")
	service := runner.Service{Name: g.images["job-busybox"], Alias: "web", Variables: []runner.Variable{{Key: "WORD", Value: "found"}},
		Entrypoint: []string{"/bin/sh", "-c", `while :; do echo "word: $WORD" | nc -l -p 8080; done`}}
	job.Services = []runner.Service{service}
	g.runner.Observe = func(stage string, pid int) {
		if stage != "prepare" || len(g.ofJob(t, job.ID)) > 0 {
			return
		}
		for range 10_000 {
			if len(g.ofJob(t, job.ID)) > 0 {
				break
			}
		}
		_ = syscall.Kill(pid, syscall.SIGKILL)
		// It may have come further than that.
		_ = g.client.CoreV1().Secrets(g.namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
	}
	g.runner.Custom.CleanupExec = ""
	result := g.run(t, job)
	require.Equal(t, runner.Success, result.Status)
	require.Contains(t, string(result.Log), "is the job's already, from an earlier try")
	require.Contains(t, string(result.Log), "word: found")
	require.Len(t, g.ofJob(t, job.ID), 1)
	secrets, err := g.client.CoreV1().Secrets(g.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: factory.LabelJob})
	require.NoError(t, err)
	require.Len(t, secrets.Items, 1)
}

func TestExitCodesReachTheRunner(t *testing.T) {
	g := newGround(t)
	g.idle(t, 1)
	result := g.run(t, script("exit 42"))
	require.Equal(t, runner.Failed, result.Status)
	require.Equal(t, runner.ScriptFailure, result.FailureReason)
	require.Equal(t, 42, result.ExitCode)
}

func TestAnImageThatDoesNotExistFailsTheJobInSeconds(t *testing.T) {
	g := newGround(t)
	job := script("true")
	job.Image = strings.Split(g.images["job-bash"], "/")[0] + "/no-such-image:1"
	result := g.run(t, job)
	require.Equal(t, runner.ScriptFailure, result.FailureReason, "it is the job's fault, and trying again is in vain")
	require.Len(t, result.Calls, 3, "config, prepare, cleanup: %v", result.Stages())
	require.Contains(t, string(result.Log), "not found", "the kubelet's words")
	require.Less(t, result.End.Sub(result.Start), 60*time.Second, "long before poll_timeout")
	for _, pod := range g.ofJob(t, job.ID) {
		require.NotNil(t, pod.DeletionTimestamp)
	}
}

func TestAPodThatCanNotBeScheduledIsWaitedForWithAReasonAndRemoved(t *testing.T) {
	g := newGround(t, `cpu_request = "500"`, `poll_timeout = 3`)
	job := script("true")
	g.runner.PrepareInterval = time.Millisecond
	result := g.run(t, job)
	require.Equal(t, runner.RunnerSystemFailure, result.FailureReason)
	require.Contains(t, string(result.Log), "waiting for a node: Unschedulable: ")
	require.Contains(t, string(result.Log), "was not ready within 3")
	require.Contains(t, string(result.Log), "(poll_timeout)")
	for _, pod := range g.ofJob(t, job.ID) {
		require.NotNil(t, pod.DeletionTimestamp)
	}
}

func TestQuota(t *testing.T) {
	g := newGround(t, `cpu_request = "10m"`, `helper_cpu_request = "10m"`, `service_cpu_request = "10m"`, `poll_timeout = 60`)
	_, err := g.client.CoreV1().ResourceQuotas(g.namespace).Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "q"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		now, err := g.client.CoreV1().ResourceQuotas(g.namespace).Get(t.Context(), "q", metav1.GetOptions{})
		require.NoError(c, err)
		require.Contains(c, now.Status.Hard, corev1.ResourcePods)
	}, time.Minute, 50*time.Millisecond)

	t.Run("a request larger than the quota is final", func(t *testing.T) {
		result := g.run(t, script("true"))
		require.Equal(t, runner.RunnerSystemFailure, result.FailureReason)
		require.Contains(t, string(result.Log), "exceeded quota: q, requested: pods=1")
		require.NotContains(t, string(result.Log), "waiting to create")
	})
	t.Run("a quota that is used up is waited for", func(t *testing.T) {
		_, err := g.client.CoreV1().ResourceQuotas(g.namespace).Patch(t.Context(), "q", types.MergePatchType, []byte(`{"spec":{"hard":{"pods":"1"}}}`), metav1.PatchOptions{})
		require.NoError(t, err)
		holder := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "holder"}, Spec: corev1.PodSpec{SchedulerName: "nobody",
			Containers: []corev1.Container{{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1m")}}}}}}
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			_, err := g.pods().Create(t.Context(), holder.DeepCopy(), metav1.CreateOptions{})
			require.True(c, err == nil || apierrors.IsAlreadyExists(err), "%v", err)
		}, time.Minute, 50*time.Millisecond)
		live := &trigger{word: "waiting to create the pod", then: func() {
			_ = g.pods().Delete(context.Background(), "holder", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
		}}
		result := g.runner.Run(t.Context(), script("true"), live)
		require.Equal(t, runner.Success, result.Status, "%s", result.Log)
		require.Equal(t, 1, strings.Count(string(result.Log), "waiting to create the pod"), "told once")
	})
}

// trigger does something when a word has come.
type trigger struct {
	text strings.Builder
	word string
	then func()
}

func (w *trigger) Write(p []byte) (int, error) {
	n, err := w.text.Write(p)
	if w.then != nil && strings.Contains(w.text.String(), w.word) {
		w.then()
		w.then = nil
	}
	return n, err
}

func TestPrepareThatWasKilledFindsItsPodAgain(t *testing.T) {
	g := newGround(t)
	g.idle(t, 2)
	job := script("echo $HOSTNAME")
	killed := false
	g.runner.Observe = func(stage string, pid int) {
		if stage != "prepare" || killed {
			return
		}
		killed = true
		// As soon as the claim is in the store.
		for range 1000 {
			if len(g.ofJob(t, job.ID)) > 0 {
				break
			}
		}
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	// Without a cleanup between the tries, as where that is killed too.
	g.runner.Custom.CleanupExec = ""
	result := g.run(t, job)
	require.True(t, killed)
	require.Equal(t, runner.Success, result.Status)
	require.Len(t, g.ofJob(t, job.ID), 1, "a job never holds two")
	if strings.Count(string(result.Log), "claimed warm pod") == 0 {
		require.Contains(t, string(result.Log), "is the job's already, from an earlier try")
	}
}

func TestAPodThatBelongsToAnotherJobInsideIsLeftAlone(t *testing.T) {
	g := newGround(t)
	idle := g.idle(t, 1)[0]
	// The store says idle, the pod says claimed: somebody restored the one and not the other.
	claimInside(t, g, idle.Name, "4711")
	job := script("echo $HOSTNAME")
	var other *corev1.Pod
	g.runner.Observe = func(stage string, _ int) {
		if stage == "build_script" {
			other, _ = g.pods().Get(t.Context(), idle.Name, metav1.GetOptions{})
		}
	}
	result := g.run(t, job)
	require.Equal(t, runner.Success, result.Status)
	require.Contains(t, string(result.Log), "says that it belongs to another job; trying another one")
	require.NotNil(t, other)
	require.Equal(t, idle.UID, other.UID)
	require.Nil(t, other.DeletionTimestamp, "it is never touched")
}

func claimInside(t *testing.T, g *ground, pod, job string) {
	t.Helper()
	client, err := connect(Call{Access: kube.Access{Kubeconfig: g.kubeconfig}}, g.settings, func(string) {})
	require.NoError(t, err)
	key, err := proof.NewKey()
	require.NoError(t, err)
	w := want{target: target{runner: g.settings, client: client, say: func(string) {}}, key: key}
	w.job.Meta.ID = job
	result, err := w.handshake(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: g.namespace, Name: pod}})
	require.NoError(t, err)
	require.Equal(t, shaken, result.outcome, result.why)
}

func TestCancel(t *testing.T) {
	g := newGround(t)
	g.idle(t, 1)
	job := script("trap 'echo cleaning up; exit 3' TERM", "echo started", "while :; do sleep 0.1; done")
	job.AfterScript = []string{"echo after: $CI_JOB_STATUS"}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	live := &trigger{word: "started\n", then: cancel}
	result := g.runner.Run(ctx, job, live)
	log := string(result.Log)
	require.Equal(t, runner.Canceled, result.Status, log)
	require.Contains(t, log, "cleaning up", "the script's last words")
	require.Contains(t, log, "after: canceled")
	require.Less(t, result.End.Sub(result.Start), 30*time.Second)
}

// What becomes of a pod under a job is a system failure, which GitLab may run again, and it is noticed at once.
func TestAPodThatIsEndedUnderAJob(t *testing.T) {
	for sentence, test := range map[string]struct {
		end  func(g *ground, pod string)
		says string
	}{
		"deleted": {func(g *ground, pod string) {
			_ = g.pods().Delete(context.Background(), pod, metav1.DeleteOptions{GracePeriodSeconds: new(int64(1))})
		}, "was deleted by somebody"},
		"deleted by force": {func(g *ground, pod string) {
			_ = g.pods().Delete(context.Background(), pod, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
		}, "pod "},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := newGround(t)
			idle := g.idle(t, 1)[0]
			job := script("echo started", "while :; do sleep 0.1; done")
			var at time.Time
			live := &trigger{word: "started\n", then: func() { at = time.Now(); test.end(g, idle.Name) }}
			result := g.runner.Run(t.Context(), job, live)
			require.Equal(t, runner.RunnerSystemFailure, result.FailureReason, "%s", result.Log)
			require.Contains(t, string(result.Log), test.says)
			call, _ := result.Call("build_script")
			require.Less(t, call.End.Sub(at), 15*time.Second)
		})
	}
}

func TestMissingRightsAreNamed(t *testing.T) {
	g := newGround(t)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	g.accountWith(t, clustertest.RestConfig(t), kubeconfig, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "nothing"}})
	g.runner.Environ = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	result := g.run(t, script("true"))
	require.Equal(t, runner.RunnerSystemFailure, result.FailureReason)
	require.Contains(t, string(result.Log), "may not list pods in namespace "+g.namespace+"; the Role that `idlecount manifests` prints lets it")
}

func TestCleanupWithoutAPreparationIsFine(t *testing.T) {
	g := newGround(t)
	g.runner.Custom.PrepareExec = "/bin/false" // exits 1: the job fails before it has a pod
	var said strings.Builder
	g.runner.Diagnostics = &said
	result := g.run(t, script("true"))
	call, ok := result.Call("cleanup")
	require.True(t, ok)
	require.Zero(t, call.ExitCode)
	require.Empty(t, said.String())
}

func TestTwentyJobsAtOnceOnIdlePods(t *testing.T) {
	const n = 8 // pods of two containers on one small node; claim's own tests have the large numbers
	g := newGround(t)
	g.idle(t, n)
	results := make(chan runner.Result, n)
	for range n {
		go func() { results <- g.runner.Run(t.Context(), script("echo pod=$HOSTNAME="), nil) }()
	}
	used := map[string]bool{}
	for range n {
		result := <-results
		require.Equal(t, runner.Success, result.Status, "%s", result.Log)
		_, after, ok := strings.Cut(string(result.Output("build_script")), "\npod=")
		require.True(t, ok)
		name, _, _ := strings.Cut(after, "=")
		require.True(t, strings.HasPrefix(name, "idle-"), "%s\n%s", name, result.Log)
		require.False(t, used[name], "pod %s had two jobs", name)
		used[name] = true
	}
}

// The idle timer of a pod and a claim meet: the timer was first, and the API doesn't know yet.
func TestAPodThatHasJustExpiredIsDroppedForTheNext(t *testing.T) {
	g := newGround(t)
	idle := g.idle(t, 3)
	for _, pod := range idle[:2] {
		g.exec(t, pod.Name, "printf 'expired\\n' > "+wire.ClaimFile)
	}
	// Until it is a pod that expired: the order of the tries is random.
	var result runner.Result
	for range 10 {
		result = g.run(t, script("echo pod=$HOSTNAME="))
		require.Equal(t, runner.Success, result.Status)
		if strings.Contains(string(result.Log), "had just expired; trying another one") {
			break
		}
		idle[2] = g.again(t, idle[2].Name)
	}
	require.Contains(t, string(result.Log), "had just expired; trying another one")
	require.NotContains(t, string(result.Log), "\npod=idle-0=")
	require.NotContains(t, string(result.Log), "\npod=idle-1=")
}

// again waits until a pod is gone and makes it anew.
func (g *ground) again(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		_, err := g.pods().Get(t.Context(), name, metav1.GetOptions{})
		require.True(c, apierrors.IsNotFound(err))
	}, time.Minute, 50*time.Millisecond)
	return g.make(t, name)
}

// exec runs a line of shell in the build container of a pod.
func (g *ground) exec(t *testing.T, pod, line string) {
	t.Helper()
	client, err := connect(Call{Access: kube.Access{Kubeconfig: g.kubeconfig}}, g.settings, func(string) {})
	require.NoError(t, err)
	conn, err := client.Open(t.Context(), pod, "build", "/bin/sh", "-c", line)
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = io.ReadAll(conn)
	require.NoError(t, err)
}

func TestAPodThatIsStillStartingIsClaimedAndWaitedFor(t *testing.T) {
	g := newGround(t)
	pod := factory.IdlePod(g.settings, g.shape(t), "warming", 30*time.Minute, factory.Owner{Name: g.anchor.Name, UID: g.anchor.UID})
	_, err := g.pods().Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
	result := g.run(t, script("echo pod=$HOSTNAME="))
	require.Equal(t, runner.Success, result.Status)
	require.Contains(t, string(result.Log), "taking pod "+g.namespace+"/warming, which is still starting")
	require.Contains(t, string(result.Log), "\npod=warming=")
}

// Parts of the control plane restart under a job: no line is lost, none comes twice, the exit code is right.
func TestRestartsUnderAJob(t *testing.T) {
	if testing.Short() {
		t.Skip("stops the API server")
	}
	faults := clustertest.Local(t)
	for sentence, test := range map[string]struct {
		stage string // in which it happens
		fault func() error
	}{
		"the API server, while the script runs": {"build_script", func() error {
			if _, err := faults.CutConnections(context.Background()); err != nil {
				return err
			}
			return faults.Restart(context.Background(), cluster.APIServer)
		}},
		"the API server, while the pod is claimed": {"prepare", func() error { return faults.Restart(context.Background(), cluster.APIServer) }},
		"the kubelet, while the script runs":       {"build_script", func() error { return faults.Restart(context.Background(), cluster.Kubelet) }},
		"all connections, again and again": {"build_script", func() error {
			for range 8 {
				time.Sleep(time.Second)
				if _, err := faults.CutConnections(context.Background()); err != nil {
					return err
				}
			}
			return nil
		}},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := newGround(t)
			g.idle(t, 1)
			const lines = 1200
			job := script(fmt.Sprintf("i=0; while [ $i -lt %d ]; do echo line $i end; i=$((i+1)); sleep 0.01; done; exit 5", lines))
			done := make(chan error, 1)
			begin := sync.OnceFunc(func() { go func() { done <- test.fault() }() })
			live := &trigger{word: "line 100 end", then: func() {
				if test.stage == "build_script" {
					begin()
				}
			}}
			g.runner.Observe = func(stage string, _ int) {
				if stage == "prepare" && stage == test.stage {
					begin()
				}
			}
			result := g.runner.Run(t.Context(), job, live)
			require.NoError(t, <-done)
			require.Equal(t, 5, result.ExitCode, "%s", result.Log)
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
		})
	}
}
