package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"idlecount.dev/idlecount/capacity"
	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/e2e/runner"
	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/pool"
)

// quota makes a ResourceQuota for pods and waits until it counts.
func (g *ground) quota(t *testing.T, name, pods string, scopes ...corev1.ResourceQuotaScope) {
	t.Helper()
	_, err := g.client.CoreV1().ResourceQuotas(g.namespace).Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse(pods)}, Scopes: scopes},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		now, err := g.client.CoreV1().ResourceQuotas(g.namespace).Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(c, err)
		require.Contains(c, now.Status.Hard, corev1.ResourcePods)
	}, time.Minute, 50*time.Millisecond)
}

// All that a quota allows is idle pods of ours: a job that needs a pod of its own doesn't wait for anybody.
func TestAQuotaThatIdlePodsUseUp(t *testing.T) {
	g := newGround(t, `poll_timeout = 45`)
	g.idle(t, 2)
	g.quota(t, "q", "2")
	job := script("echo cold")
	job.Image = g.images["job-busybox"]
	result := g.run(t, job)
	require.Equal(t, runner.Success, result.Status)
	require.Equal(t, 1, strings.Count(string(result.Log), "quota q is used up; gave back idle-"), "told once")
	require.NotContains(t, string(result.Log), "waiting to create")
	left, err := g.pods().List(t.Context(), metav1.ListOptions{LabelSelector: factory.LabelState + "=" + factory.StateIdle})
	require.NoError(t, err)
	require.Len(t, left.Items, 1, "one was enough")
}

// A quota with scopes refuses jobs, and doesn't count pods that wait for them. One is given to find that out, for all of GitLab
// Runner's tries of the job.
func TestAQuotaThatCountsNoIdlePods(t *testing.T) {
	g := newGround(t, `poll_timeout = 14`)
	g.idle(t, 3)
	for i := range 3 {
		_, err := g.pods().Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("other-%d", i)},
			Spec: corev1.PodSpec{
				ActiveDeadlineSeconds: new(int64(3600)), NodeSelector: map[string]string{"idlecount.dev/test": "nowhere"},
				Containers: []corev1.Container{{Name: "a", Image: "a:1"}},
			},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	g.quota(t, "q", "3", corev1.ResourceQuotaScopeTerminating)
	job := script("echo never")
	job.Image = g.images["job-busybox"]
	result := g.run(t, job)
	require.Equal(t, runner.RunnerSystemFailure, result.FailureReason, "%s", result.Log)
	require.Equal(t, 1, strings.Count(string(result.Log), "gave back "), "%s", result.Log)
	require.Equal(t, 3, strings.Count(string(result.Log), "waiting to create"), "there were three tries")
	left, err := g.pods().List(t.Context(), metav1.ListOptions{LabelSelector: factory.LabelState + "=" + factory.StateIdle})
	require.NoError(t, err)
	require.Len(t, left.Items, 2)
}

// All that a quota allows is room: the jobs get it, several at once and where no headroom is left free, and the pause pods
// don't come back in their way.
func TestAQuotaThatPausePodsUseUp(t *testing.T) {
	const jobs, room = 3, 4
	g := newGround(t, `poll_timeout = 60`, `idle_quota_headroom = 0`, fmt.Sprintf("idle_pause_count = %d", room))
	g.quota(t, "q", strconv.Itoa(room))
	loaded, err := config.Load([]string{g.file})
	require.NoError(t, err)
	_, err = g.client.CoordinationV1().Leases(g.namespace).Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "l"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	keeper, err := capacity.New(capacity.Options{Client: g.client, LeaseNamespace: g.namespace, LeaseName: "l"})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	var led sync.WaitGroup
	led.Go(func() { keeper.Lead(ctx, func() (*config.Config, string, <-chan struct{}) { return loaded, "", nil }) })
	defer func() { stop(); led.Wait() }()
	pausing := func(t require.TestingT) []corev1.Pod {
		pods, err := g.pods().List(context.WithoutCancel(ctx), metav1.ListOptions{LabelSelector: factory.LabelCapacity, FieldSelector: "status.phase=Running"})
		require.NoError(t, err)
		return pods.Items
	}
	require.EventuallyWithT(t, func(c *assert.CollectT) { require.Len(c, pausing(c), room) }, time.Minute, 100*time.Millisecond)

	results := make([]runner.Result, jobs)
	var running sync.WaitGroup
	for i := range results {
		running.Go(func() { results[i] = g.runner.Run(t.Context(), script("sleep 5; echo done"), nil) })
	}
	running.Wait()
	for _, result := range results {
		require.Equal(t, runner.Success, result.Status, "%s", result.Log)
		require.Contains(t, string(result.Log), "quota q is used up; gave back the room of pause pod ")
		require.NotContains(t, string(result.Log), "waiting to create")
	}
	require.EventuallyWithT(t, func(c *assert.CollectT) { require.Len(c, pausing(c), room) }, time.Minute, 100*time.Millisecond, "the room comes back after the jobs")
}

// A manager sees the same room, and wants its pod back.
func TestAQuotaThatIdlePodsUseUpUnderAManager(t *testing.T) {
	g := newGround(t, `poll_timeout = 45`)
	g.quota(t, "q", "1")
	loaded, err := config.Load([]string{g.file})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- pool.Run(ctx, pool.Options{Client: g.client, Config: loaded, Identity: "m", LeaseNamespace: g.namespace})
	}()
	defer func() { stop(); require.NoError(t, <-done) }()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		pods, err := g.pods().List(t.Context(), metav1.ListOptions{LabelSelector: factory.LabelState + "=" + factory.StateIdle})
		require.NoError(c, err)
		require.Len(c, pods.Items, 1)
		require.NotNil(c, factory.ReadySince(&pods.Items[0]))
	}, time.Minute, 100*time.Millisecond)
	job := script("echo cold")
	job.Image = g.images["job-busybox"]
	result := g.run(t, job)
	require.Equal(t, runner.Success, result.Status)
	require.Contains(t, string(result.Log), "quota q is used up; gave back ")
}
