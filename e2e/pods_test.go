package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/remotecommand"

	"idlecount.dev/idlecount/factory"
)

// patience is how long a test waits for what takes a second or two on an idle machine: tests of other packages run beside.
const patience = 3 * time.Minute

// until waits until what the namespace's pods are is as wanted, and returns them. It looks whenever something changes.
func (s *site) until(what string, wanted func([]corev1.Pod) bool) []corev1.Pod {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	var last []corev1.Pod
	for {
		list, err := s.client.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{})
		if err == nil {
			if last = list.Items; wanted(last) {
				return last
			}
			err = s.change(ctx, list.ResourceVersion)
		}
		if ctx.Err() != nil {
			s.t.Fatalf("waited %s in vain for: %s\nthe pods: %v", patience, what, phases(last))
		}
		if err != nil {
			// An API server that a test has stopped; nothing to wait for but time.
			time.Sleep(200 * time.Millisecond)
		}
	}
}

// change waits until something happens to a pod after a version.
func (s *site) change(ctx context.Context, version string) error {
	// Not for ever: a watch may be cut without a word.
	watch, err := s.client.CoreV1().Pods(s.namespace).Watch(ctx, metav1.ListOptions{ResourceVersion: version, TimeoutSeconds: new(int64(5))})
	if err != nil {
		return err
	}
	defer watch.Stop()
	select {
	case <-watch.ResultChan():
	case <-ctx.Done():
	}
	return nil
}

func phases(pods []corev1.Pod) []string {
	var all []string
	for i := range pods {
		all = append(all, pods[i].Name+" "+string(factory.PhaseOf(&pods[i])))
	}
	return all
}

// in are the pods in a phase.
func in(pods []corev1.Pod, phase factory.Phase) []corev1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(pod corev1.Pod) bool { return factory.PhaseOf(&pod) != phase })
}

// untilIdle waits until exactly n pods are idle and none is warming.
func (s *site) untilIdle(n int) []corev1.Pod {
	s.t.Helper()
	pods := s.until(strconv.Itoa(n)+" idle pods", func(pods []corev1.Pod) bool {
		return len(in(pods, factory.Idle)) == n && len(in(pods, factory.Warming)) == 0
	})
	return in(pods, factory.Idle)
}

// untilNone waits until the job has no pod any more.
func (s *site) untilNone(job int64) {
	s.t.Helper()
	s.until("no pod of the job", func(pods []corev1.Pod) bool { return len(ofJob(pods, job)) == 0 })
}

// podOf is the pod that a job has: one, exactly.
func (s *site) podOf(job int64) (corev1.Pod, error) {
	list, err := s.client.CoreV1().Pods(s.namespace).List(s.t.Context(), metav1.ListOptions{})
	if err != nil {
		return corev1.Pod{}, err
	}
	pods := ofJob(list.Items, job)
	if len(pods) != 1 {
		return corev1.Pod{}, fmt.Errorf("job %d has %d pods: %v", job, len(pods), phases(list.Items))
	}
	return pods[0], nil
}

func ofJob(pods []corev1.Pod, job int64) []corev1.Pod {
	id := strconv.FormatInt(job, 10)
	return slices.DeleteFunc(slices.Clone(pods), func(pod corev1.Pod) bool { return pod.Labels[factory.LabelJob] != id })
}

func uids(pods []corev1.Pod) []string {
	var all []string
	for _, pod := range pods {
		all = append(all, string(pod.UID))
	}
	slices.Sort(all)
	return all
}

// goOn lets a script go on that waits for a file "go" in its project. Right after a fault nobody may be able to tell it.
func (s *site) goOn(job int64) error {
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	for {
		err := s.exec(ctx, job, "touch /builds/grp/prj/go")
		if err == nil {
			return nil
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
}

// exec runs a command in the build container of a job's pod.
func (s *site) exec(ctx context.Context, job int64, command string) error {
	pod, err := s.podOf(job)
	if err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	if err != nil {
		return err
	}
	request := s.client.CoreV1().RESTClient().Post().Resource("pods").Namespace(s.namespace).Name(pod.Name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: "build", Command: []string{"sh", "-c", command}, Stdout: true, Stderr: true}, scheme.ParameterCodec)
	executor, err := remotecommand.NewWebSocketExecutor(config, "GET", request.URL().String())
	if err != nil {
		return err
	}
	var output bytes.Buffer
	if err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &output, Stderr: &output}); err != nil {
		return fmt.Errorf("exec in pod %s: %w: %s", pod.Name, err, &output)
	}
	return nil
}
