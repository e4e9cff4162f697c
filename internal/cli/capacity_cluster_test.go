package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"idlecount.dev/idlecount/capacity"
	"idlecount.dev/idlecount/capacity/patch"
	capacitystatus "idlecount.dev/idlecount/capacity/status"
	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/internal/cli"
	"idlecount.dev/idlecount/pool/status"
)

// someCapacity is a runner of GitLab's own executor that keeps room in the namespace, and its configuration.
func someCapacity(t *testing.T, namespace string, keys ...string) (file string, r config.Runner, c factory.Capacity) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "config.toml")
	require.NoError(t, os.WriteFile(file, []byte(`
[[runners]]
  name = "stock"
  url = "https://gitlab.example.com"
  token = "glrt-stockstockstock"
  executor = "kubernetes"
  [runners.kubernetes]
    namespace = "`+namespace+`"
    image = "registry.invalid/job:1"
    cpu_request = "1"
    idle_entrypoint_image = "registry.invalid/entrypoint:1"
    node_selector = {"idlecount.dev/no-node" = "has-this"}
    `+strings.Join(keys, "\n    ")+"\n"), 0o600))
	cfg, err := config.Load([]string{file})
	require.NoError(t, err)
	r = cfg.Runners[0]
	c, err = factory.CapacityOf(r, "", nil, patch.Apply)
	require.NoError(t, err)
	return file, r, c
}

// addCapacity makes a capacity's anchor with a status, as the manager does.
func (c realCluster) addCapacity(t *testing.T, r config.Runner, room factory.Capacity, s capacitystatus.Status) *corev1.ConfigMap {
	t.Helper()
	return c.add(t, factory.PauseAnchor(r, room), s.Encode())
}

// pausePod is one as the Deployment's controller makes it. It has no priority: its class may not be there.
func pausePod(room factory.Capacity, name string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: *room.Template.ObjectMeta.DeepCopy(), Spec: *room.Template.Spec.DeepCopy()}
	pod.Name, pod.Spec.PriorityClassName = name, ""
	return pod
}

func TestPausingAndDrainingRoomOnARealCluster(t *testing.T) {
	t.Parallel()
	c := onCluster(t)
	c.addLease(t, time.Now())
	lease := c.namespace + "/idlecount"
	poolRunner, shape := somePool(t, c.namespace)
	pool := c.addAnchor(t, poolRunner, shape, status.Status{Runner: "ci", Want: 1, Lease: lease})
	_, r, room := someCapacity(t, c.namespace, `idle_strategy = "pause"`)
	anchor := c.addCapacity(t, r, room, capacitystatus.Status{Runner: "stock", Strategy: "pause", Policy: "default", Want: 2, Hold: 2, Lease: lease})
	c.addPod(t, pausePod(room, "pause-pod"), false)
	gitlabs := pausePod(room, "gitlabs-pause-pod") // labelled as a job's pod, and none
	delete(gitlabs.Labels, factory.LabelCapacity)
	gitlabs.Labels["runner.gitlab.com/pause-pod"] = "true"
	c.addPod(t, gitlabs, false)
	backup := anchor.DeepCopy() // with the label of an anchor, and none
	backup.Name, backup.ResourceVersion = "backup", ""
	_, err := c.CoreV1().ConfigMaps(c.namespace).Create(t.Context(), backup, metav1.CreateOptions{})
	require.NoError(t, err)
	annotations := func() map[string]string {
		t.Helper()
		cm, err := c.CoreV1().ConfigMaps(c.namespace).Get(t.Context(), anchor.Name, metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, anchor.Data, cm.Data, "the status is the manager's")
		return cm.Annotations
	}
	before := annotations()

	t.Run("names of both kinds", func(t *testing.T) {
		code, stdout, stderr := c.idlecount(t, "pause", anchor.Name, pool.Name)
		require.Equal(t, cli.ExitOK, code, stderr)
		require.Empty(t, stderr)
		require.Equal(t, "pool/"+pool.Name+" paused\ncapacity/"+anchor.Name+" paused\n", stdout)
		require.Equal(t, "true", annotations()[factory.AnnotationPaused])
	})
	t.Run("again is no error", func(t *testing.T) {
		code, stdout, stderr := c.idlecount(t, "pause", anchor.Name)
		require.Equal(t, cli.ExitOK, code, stderr)
		require.Equal(t, "capacity/"+anchor.Name+" already paused\n", stdout)
	})
	t.Run("names as they are printed are names", func(t *testing.T) {
		code, stdout, stderr := c.idlecount(t, "pause", "capacity/"+anchor.Name, "pool/"+pool.Name)
		require.Equal(t, cli.ExitOK, code, stderr)
		require.Equal(t, "pool/"+pool.Name+" already paused\ncapacity/"+anchor.Name+" already paused\n", stdout)
		code, stdout, stderr = c.idlecount(t, "status", "capacity/"+anchor.Name, "-o", "name")
		require.Equal(t, cli.ExitOK, code, stderr)
		require.Equal(t, anchor.Name+"\n", stdout)
	})
	t.Run("status of the one that is named says so, and has no other", func(t *testing.T) {
		code, stdout, stderr := c.idlecount(t, "status", anchor.Name)
		require.Equal(t, cli.ExitOK, code, stderr)
		shown := lines(stdout)
		require.Len(t, shown, 3)
		require.Equal(t, strings.Fields("CAPACITY STRATEGY POLICY WANT HELD PENDING JOBS SCHEDULED IN"), strings.Fields(shown[0]))
		require.Equal(t, []string{anchor.Name, "pause", "default", "2", "0", "1", "0", "-"}, strings.Fields(shown[1]))
		require.Regexp(t, "^  -> paused; `idlecount resume` ends that; 1 waits for a node: ", shown[2])
		_, stdout, _ = c.idlecount(t, "status", pool.Name)
		require.NotContains(t, stdout, anchor.Name)
	})
	t.Run("all, as JSON", func(t *testing.T) {
		code, stdout, stderr := c.idlecount(t, "drain", "--all", "-o", "json")
		require.Equal(t, cli.ExitOK, code, stderr)
		var list struct {
			Pools, Capacity []struct {
				Namespace, Name, Mode string
				Changed               bool
			}
		}
		require.NoError(t, json.Unmarshal([]byte(stdout), &list))
		require.Len(t, list.Pools, 1)
		require.Len(t, list.Capacity, 1)
		require.Equal(t, anchor.Name, list.Capacity[0].Name)
		require.Equal(t, "drained", list.Capacity[0].Mode)
		require.True(t, list.Capacity[0].Changed)
		require.Equal(t, "true", annotations()[factory.AnnotationDrained])
		require.NotContains(t, annotations(), factory.AnnotationPaused, "to drain takes the pause back")
		_, stdout, _ = c.idlecount(t, "status", anchor.Name)
		require.Contains(t, stdout, "  -> drained: pause pods go (1 left); `idlecount resume` holds room again\n")
	})
	t.Run("to resume takes all back, of what is named and exists", func(t *testing.T) {
		code, stdout, stderr := c.idlecount(t, "resume", "-A", anchor.Name, "nowhere")
		require.Equal(t, cli.ExitError, code)
		require.Equal(t, "capacity/"+anchor.Name+" resumed in namespace "+c.namespace+"\n", stdout)
		require.Equal(t, "error: there is no pool or capacity \"nowhere\" in any namespace; `idlecount status -A -o name` lists those that exist\n", stderr)
		require.Equal(t, before, annotations())
		_, stdout, _ = c.idlecount(t, "resume", "--all", "-o", "name")
		require.Equal(t, "pool/"+pool.Name+"\ncapacity/"+anchor.Name+"\n", stdout)
	})
	t.Run("completion offers both", func(t *testing.T) {
		for _, command := range []string{"pause", "status"} {
			code, stdout, _ := idlecount(t.Context(), "__complete", command, "--kubeconfig", c.kubeconfig, "")
			require.Equal(t, cli.ExitOK, code)
			require.Equal(t, []string{pool.Name, anchor.Name}, lines(stdout)[:2])
		}
		_, stdout, _ := idlecount(t.Context(), "__complete", "pause", "--kubeconfig", c.kubeconfig, anchor.Name, "")
		require.NotContains(t, stdout, anchor.Name)
	})
	t.Run("names of all", func(t *testing.T) {
		_, stdout, _ := c.idlecount(t, "status", "-o", "name")
		require.Equal(t, pool.Name+"\n"+anchor.Name+"\n", stdout)
	})
}

// TestStatusFollowsRoomOnARealCluster: the anchor, pause pods and the pods of jobs are watched.
func TestStatusFollowsRoomOnARealCluster(t *testing.T) {
	t.Parallel()
	c := onCluster(t)
	_, r, room := someCapacity(t, c.namespace, `idle_strategy = "pause"`)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out, errOut syncBuffer
	ended := make(chan int)
	go func() {
		args := []string{"status", "--watch", room.Name, "--kubeconfig", c.kubeconfig}
		ended <- cli.Main(ctx, args, genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &out, ErrOut: &errOut})
	}()
	shows := func(what string) {
		t.Helper()
		require.Eventually(t, func() bool { return strings.Contains(out.String(), what) }, 20*time.Second, 20*time.Millisecond,
			"%q is not shown\nstdout:\n%s\nstderr:\n%s", what, &out, &errOut)
	}
	require.Eventually(t, func() bool {
		return strings.Contains(errOut.String(), "No pools or capacities "+room.Name+" in namespace "+c.namespace+" yet; waiting for some.")
	}, 20*time.Second, 20*time.Millisecond)

	anchor := c.addCapacity(t, r, room, capacitystatus.Status{Strategy: "pause", Policy: "first", Want: 3, Hold: 3})
	shows("first    3      0      0         0")
	c.addPod(t, pausePod(room, "pause-pod"), false)
	shows("first    3      0      1         0")
	job := pausePod(room, "job")
	delete(job.Labels, factory.LabelCapacity)
	job.Spec.Containers[0].Name = "build"
	c.addPod(t, job, false)
	shows("first    3      0      1         1")
	_, _, stderr := c.idlecount(t, "pause", anchor.Name)
	require.Empty(t, stderr)
	shows("  -> paused; `idlecount resume` ends that")

	// The room of an image of its own is another capacity, which nobody asks for here; the job is one of it.
	big := factory.Capacity{Name: room.Name + "-big", Namespace: room.Namespace}
	c.addCapacity(t, r, big, capacitystatus.Status{Strategy: "pause", Policy: "big", Image: job.Spec.Containers[0].Image})
	require.Eventually(t, func() bool { return strings.Count(out.String(), "first    3      0      1         0") == 2 }, 20*time.Second, 20*time.Millisecond)
	require.NotContains(t, out.String(), big.Name)
	_, stdout, _ := c.idlecount(t, "status", big.Name)
	require.Regexp(t, `big +0 +0 +0 +1 `, stdout)
	require.NotContains(t, stdout, "first")

	cancel()
	require.Equal(t, cli.ExitOK, <-ended)
}

func TestPlanOfRoomOnARealCluster(t *testing.T) {
	t.Parallel()
	c := onCluster(t)
	file, r, room := someCapacity(t, c.namespace, `idle_strategy = "pause"`, "idle_count = 3")
	both := filepath.Join(t.TempDir(), "config.toml")
	for _, one := range []string{writeConfig(t, c.namespace), file} {
		text, err := os.ReadFile(one)
		require.NoError(t, err)
		before, _ := os.ReadFile(both)
		require.NoError(t, os.WriteFile(both, append(before, text...), 0o600))
	}
	t.Run("a capacity that isn't there", func(t *testing.T) {
		code, stdout, stderr := c.idlecount(t, "plan", "-c", file)
		require.Equal(t, cli.ExitOK, code, stderr)
		require.Equal(t, strings.Fields("NAMESPACE CAPACITY STRATEGY POLICY WANT HELD PENDING JOBS HOLD CHANGE"), strings.Fields(lines(stdout)[0]))
		require.Equal(t, []string{c.namespace, room.Name, "pause", "default", "3", "0", "0", "0", "3", "+3"}, strings.Fields(lines(stdout)[1]))
		require.Equal(t, "  -> the capacity is new", lines(stdout)[2])
		require.Equal(t, "1 capacity: room for 3 more jobs\n", stderr)
		made, err := c.CoreV1().ConfigMaps(c.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: factory.LabelCapacity})
		require.NoError(t, err)
		require.Empty(t, made.Items)
	})
	t.Run("pools beside it", func(t *testing.T) {
		code, stdout, stderr := c.idlecount(t, "plan", "-c", both)
		require.Equal(t, cli.ExitOK, code, stderr)
		require.Contains(t, stdout, "\n\nNAMESPACE")
		require.Equal(t, "1 pool: 1 pod to create, 0 to delete; 1 capacity: room for 3 more jobs\n", stderr)
	})
	t.Run("one manager keeps both: what pools name is meant for capacities, too", func(t *testing.T) {
		poolRunner, shape := somePool(t, c.namespace)
		pool := c.addAnchor(t, poolRunner, shape, status.Status{Runner: "ci", Lease: c.namespace + "/idlecount"})
		anchor := c.addCapacity(t, r, room, capacitystatus.Status{Runner: "stock", Strategy: "pause", Lease: "other/idlecount"})
		_, stdout, stderr := c.idlecount(t, "plan", "-c", both)
		require.NotContains(t, stderr, "error")
		require.Contains(t, stdout, "  -> the managers of lease other/idlecount have the capacity; it would be taken from them\n")
		for _, name := range []string{pool.Name, anchor.Name} {
			require.NoError(t, c.CoreV1().ConfigMaps(c.namespace).Delete(t.Context(), name, metav1.DeleteOptions{}))
		}
	})
	t.Run("what has left the file, as JSON", func(t *testing.T) {
		c.addCapacity(t, r, room, capacitystatus.Status{Runner: "stock", Strategy: "pause", Hold: 1, Lease: c.namespace + "/idlecount"})
		c.addLease(t, time.Now())
		_, err := c.CoordinationV1().Leases(c.namespace).Patch(t.Context(), "idlecount", "application/merge-patch+json",
			[]byte(`{"metadata":{"annotations":{"idlecount.dev/capacity-namespaces":"`+c.namespace+`"}}}`), metav1.PatchOptions{})
		require.NoError(t, err)
		none := filepath.Join(t.TempDir(), "config.toml")
		require.NoError(t, os.WriteFile(none, []byte("concurrent = 1\n"), 0o600))
		code, stdout, stderr := c.idlecount(t, "plan", "-c", none, "--leader-elect-namespace", c.namespace, "-o", "json")
		require.Equal(t, cli.ExitOK, code, stderr)
		var list struct{ Capacity []capacity.Preview }
		require.NoError(t, json.Unmarshal([]byte(stdout), &list))
		require.Len(t, list.Capacity, 1)
		require.True(t, list.Capacity[0].Ends)
		require.Equal(t, "removed", list.Capacity[0].Policy)
	})
	t.Run("by somebody who may not see quotas and priorities", func(t *testing.T) {
		user := "planner-" + c.namespace
		meta := metav1.ObjectMeta{Name: user, Namespace: c.namespace}
		_, err := c.RbacV1().Roles(c.namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"", "apps"}, Resources: []string{"pods", "configmaps", "deployments"}, Verbs: []string{"list"}},
		}}, metav1.CreateOptions{})
		require.NoError(t, err)
		_, err = c.RbacV1().RoleBindings(c.namespace).Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: meta, Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: user}},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		var stderr string
		require.Eventually(t, func() bool { // a moment later the API server goes by it
			var code int
			code, _, stderr = c.idlecount(t, "plan", "-c", file, "--as", user)
			return code == cli.ExitOK
		}, 20*time.Second, 100*time.Millisecond)
		require.Contains(t, stderr, "warning: can't see the ResourceQuotas, so the plan goes without them (namespace "+c.namespace+"): resourcequotas is forbidden: ")
		require.Contains(t, stderr, "warning: can't see the PriorityClasses, so whether jobs can take the place of pause pods isn't known: ")
		require.NotContains(t, stderr, "level=")
	})
	t.Run("by somebody who may not look", func(t *testing.T) {
		code, stdout, stderr := c.idlecount(t, "plan", "-c", file, "--as", "jane")
		require.Equal(t, cli.ExitError, code)
		require.Empty(t, stdout)
		require.Contains(t, stderr, `User "jane" cannot list resource "configmaps"`)
	})
}
