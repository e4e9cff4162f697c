package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"

	"idlecount.dev/idlecount/e2e/cluster/internal/build"
)

// KWOK nodes carry this annotation, which KWOK selects them by, and a taint of the same key and value.
const (
	kwokKey     = "kwok.x-k8s.io/node"
	kwokValue   = "fake"
	kwokPrefix  = "kwok-"
	kwokPodCIDR = "10.128.0.0/16"
)

// KWOKNodeSelector returns the node selector that brings a pod onto KWOK nodes; it needs KWOKToleration too.
func KWOKNodeSelector() map[string]string { return map[string]string{"type": "kwok"} }

// KWOKToleration returns the toleration without which no pod is placed on a KWOK node.
func KWOKToleration() corev1.Toleration {
	return corev1.Toleration{Key: kwokKey, Operator: corev1.TolerationOpEqual, Value: kwokValue, Effect: corev1.TaintEffectNoSchedule}
}

// kwokStages are the files, below kustomize/stage in KWOK's module, that say what KWOK does to its nodes and pods:
// both get ready at once, nodes keep their lease, pods go at once when they are deleted and never complete by themselves.
func kwokStages() []string {
	return []string{
		"node/fast/node-initialize.yaml",
		"node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
		"pod/fast/pod-ready.yaml",
		"pod/fast/pod-delete.yaml",
	}
}

// readStages joins the stage files of the KWOK version that was built. They are kept beside the program: Go's module
// cache may be emptied.
func readStages(ctx context.Context, recipe build.Recipe, programs string) ([]byte, error) {
	kept := filepath.Join(recipe.Folder(programs), "stages.yaml")
	if content, err := os.ReadFile(kept); err == nil {
		return content, nil
	}
	source, err := recipe.SourceFolder(ctx)
	if err != nil {
		return nil, err
	}
	var stages []string
	for _, name := range kwokStages() {
		content, err := os.ReadFile(filepath.Join(source, "kustomize", "stage", name))
		if err != nil {
			return nil, err
		}
		stages = append(stages, string(content))
	}
	joined := []byte(strings.Join(stages, "\n---\n"))
	if err := os.WriteFile(kept+".partial", joined, 0o644); err != nil {
		return nil, err
	}
	return joined, os.Rename(kept+".partial", kept)
}

// scaleKWOK makes the number of KWOK nodes n. The caller holds the lock.
func (c *Cluster) scaleKWOK(ctx context.Context, n int) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	if n > 0 {
		if err := c.start(ctx, KWOK); err != nil {
			return err
		}
	}
	have, err := kwokNodes(ctx, client)
	if err != nil {
		return err
	}
	for _, node := range have {
		if index, err := strconv.Atoi(strings.TrimPrefix(node.Name, kwokPrefix)); err == nil && index < n {
			continue
		}
		if err := removeNode(ctx, client, node.Name); err != nil {
			return err
		}
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(10)
	for i := range n {
		group.Go(func() error {
			_, err := client.CoreV1().Nodes().Create(groupCtx, kwokNode(i), metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) {
				return nil
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("create KWOK nodes: %w", err)
	}
	if n == 0 {
		return readRecord(c.layout, KWOK).Stop(ctx, stopGrace)
	}
	return waitNodes(ctx, client, n+1)
}

func kwokNode(index int) *corev1.Node {
	name := kwokPrefix + strconv.Itoa(index)
	labels := KWOKNodeSelector()
	labels[corev1.LabelHostname] = name
	labels[corev1.LabelOSStable] = "linux"
	labels[corev1.LabelArchStable] = runtime.GOARCH
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: map[string]string{kwokKey: kwokValue}},
		Spec: corev1.NodeSpec{
			Taints: []corev1.Taint{{Key: kwokKey, Value: kwokValue, Effect: corev1.TaintEffectNoSchedule}},
		},
	}
}

func kwokNodes(ctx context.Context, client kubernetes.Interface) ([]corev1.Node, error) {
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: "type=kwok"})
	if err != nil {
		return nil, fmt.Errorf("list KWOK nodes: %w", err)
	}
	return list.Items, nil
}

// removeNode removes the node's pods with it: the cluster's own garbage collector only comes by after a while.
func removeNode(ctx context.Context, client kubernetes.Interface, name string) error {
	if err := client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete node %s: %w", name, err)
	}
	pods, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", name).String()})
	if err != nil {
		return fmt.Errorf("list the pods of node %s: %w", name, err)
	}
	for _, pod := range pods.Items {
		// Without grace: nobody is left to confirm that it ended.
		err := client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete pod %s/%s of node %s: %w", pod.Namespace, pod.Name, name, err)
		}
	}
	return nil
}

// waitNodes returns when at least count nodes are ready for pods.
func waitNodes(ctx context.Context, client kubernetes.Interface, count int) error {
	for {
		list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err == nil {
			ready := 0
			for _, node := range list.Items {
				if nodeProblem(node) == "" {
					ready++
				}
			}
			if ready >= count {
				return nil
			}
			err = fmt.Errorf("%d of %d nodes are ready: %s", ready, count, problems(list.Items))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the nodes (%w): %w", context.Cause(ctx), err)
		case <-time.After(healthInterval):
		}
	}
}

// nodeProblem says why pods are not placed on the node, "" if they are.
func nodeProblem(node corev1.Node) string {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status != corev1.ConditionTrue {
			return condition.Reason + ": " + condition.Message
		}
	}
	if len(node.Status.Conditions) == 0 {
		return "has not reported yet"
	}
	for _, taint := range node.Spec.Taints {
		if taint.Key != kwokKey && taint.Effect != corev1.TaintEffectPreferNoSchedule {
			return "taint " + taint.ToString()
		}
	}
	return ""
}

func problems(nodes []corev1.Node) string {
	var all []string
	for _, node := range nodes {
		if problem := nodeProblem(node); problem != "" {
			all = append(all, node.Name+": "+problem)
		}
	}
	return strings.Join(all, "; ")
}

func (c *Cluster) client() (kubernetes.Interface, error) {
	config, err := c.RESTConfig()
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}
