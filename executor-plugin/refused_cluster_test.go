package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"idlecount.dev/idlecount/e2e/cluster/clustertest"
	"idlecount.dev/idlecount/e2e/runner"
)

// hasty is a scheduler that gives each pod of its name in a namespace a node, full or not: what a kubelet sees when the
// scheduler has preempted somebody whom the kubelet still counts.
func (g *ground) hasty(t *testing.T, name, node string) {
	t.Helper()
	changes, err := g.pods().Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	t.Cleanup(changes.Stop)
	go func() {
		bound := map[string]bool{}
		for event := range changes.ResultChan() {
			pod, ok := event.Object.(*corev1.Pod)
			if !ok || pod.Spec.SchedulerName != name || pod.Spec.NodeName != "" || bound[pod.Name] {
				continue
			}
			bound[pod.Name] = true
			err := g.pods().Bind(t.Context(), &corev1.Binding{
				ObjectMeta: metav1.ObjectMeta{Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: node},
			}, metav1.CreateOptions{})
			if err != nil && t.Context().Err() == nil {
				t.Errorf("bind pod %s: %v", pod.Name, err)
			}
		}
	}()
}

// kubelet returns the node that has one.
func kubelet(t *testing.T) corev1.Node {
	t.Helper()
	client, err := kubernetes.NewForConfig(clustertest.RestConfig(t))
	require.NoError(t, err)
	nodes, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{LabelSelector: "type!=kwok"})
	require.NoError(t, err)
	require.NotEmpty(t, nodes.Items)
	return nodes.Items[0]
}

// A node that counts a preempted pod still refuses the job's. Another one is made, once the log has said so.
func TestANodeThatRefusesThePodIsTriedAgain(t *testing.T) {
	node := kubelet(t)
	most := resource.NewMilliQuantity(node.Status.Allocatable.Cpu().MilliValue()*6/10, resource.DecimalSI) // two don't fit
	g := newGround(t, `scheduler_name = "hasty"`, fmt.Sprintf("cpu_request = %q", most), `poll_timeout = 60`)
	g.hasty(t, "hasty", node.Name)
	_, err := g.pods().Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "preempted"},
		Spec: corev1.PodSpec{
			NodeName: node.Name, TerminationGracePeriodSeconds: new(int64(0)),
			Containers: []corev1.Container{{
				Name: "c", Image: g.images["job-busybox"], Command: []string{"sleep", "3600"},
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: *most}},
			}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NotNil(t, g.wait(t, "preempted", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning }))

	live := &trigger{word: "making another one", then: func() {
		_ = g.pods().Delete(context.WithoutCancel(t.Context()), "preempted", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
	}}
	job := script("echo it ran")
	result := g.runner.Run(t.Context(), job, live)
	require.Equal(t, runner.Success, result.Status, "%s", result.Log)
	require.Contains(t, string(result.Log), "the pod ended before it was ready: OutOfcpu: ")
	require.Contains(t, string(result.Output("build_script")), "it ran")
	require.Equal(t, 1, strings.Count(string(result.Log), "Preparing the"), "GitLab Runner had nothing to repeat")
	for _, pod := range g.ofJob(t, job.ID) {
		require.NotNil(t, pod.DeletionTimestamp, pod.Name)
	}
}

// A node that never takes the pod ends the job as one that can't be prepared, with the kubelet's words, and leaves nothing.
func TestANodeThatGoesOnRefusingFailsTheJob(t *testing.T) {
	g := newGround(t, `scheduler_name = "hasty"`, `cpu_request = "500"`, `poll_timeout = 60`)
	g.hasty(t, "hasty", kubelet(t).Name)
	job := script("true")
	result := g.run(t, job)
	require.Equal(t, runner.RunnerSystemFailure, result.FailureReason)
	tries := strings.Count(string(result.Log), "no warm pod: ")
	require.Equal(t, tries*(maxCold-1), strings.Count(string(result.Log), "making another one"))
	require.Contains(t, string(result.Log), "OutOfcpu")
	require.NotContains(t, string(result.Log), "poll_timeout")
	for _, pod := range g.ofJob(t, job.ID) {
		require.NotNil(t, pod.DeletionTimestamp, pod.Name)
	}
}
