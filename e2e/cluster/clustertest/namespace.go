package clustertest

import (
	"context"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"idlecount.dev/idlecount/e2e/cluster"
)

// Namespace makes a namespace for this test, in which pods can be created at once, and returns its name. It is deleted
// at the end of the test; nobody waits until it is gone. If the test fails, what was in it is logged.
//
// It takes no lock: call RestConfig or Local first.
func Namespace(t testing.TB) string {
	t.Helper()
	client := client(t)
	name := namespaceName(t.Name())
	// After an outage the controller manager comes back to its watches within a minute.
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	_, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create the namespace %s: %v", name, err)
	}
	t.Cleanup(func() { deleteNamespace(t, client, name) })
	if err := waitServiceAccount(ctx, client, name); err != nil {
		t.Fatalf("wait for the service account of namespace %s, without which no pod is admitted: %v", name, err)
	}
	return name
}

func client(t testing.TB) kubernetes.Interface {
	t.Helper()
	path := os.Getenv(KubeconfigVariable)
	if path == "" {
		c, err := cluster.Find(t.Context())
		if err != nil {
			missing(t, err)
		}
		path = c.Kubeconfig()
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatalf("the kubeconfig %s for tests: %v", path, err)
	}
	config.QPS, config.Burst = -1, 0
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func waitServiceAccount(ctx context.Context, client kubernetes.Interface, namespace string) error {
	// A watch without a version starts with what is there.
	watch, err := client.CoreV1().ServiceAccounts(namespace).Watch(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", "default").String(),
	})
	if err != nil {
		return err
	}
	defer watch.Stop()
	select {
	case <-watch.ResultChan():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func deleteNamespace(t testing.TB, client kubernetes.Interface, name string) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if t.Failed() {
		logContents(ctx, t, client, name)
	}
	// Pods that ignore SIGTERM would keep the machine busy for another half a minute each.
	err := client.CoreV1().Pods(name).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: new(int64(1))}, metav1.ListOptions{})
	if err != nil {
		t.Logf("delete the pods of namespace %s: %v", name, err)
	}
	if err := client.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		t.Logf("delete the namespace %s: %v", name, err)
	}
}

func logContents(ctx context.Context, t testing.TB, client kubernetes.Interface, namespace string) {
	pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Logf("list the pods of namespace %s: %v", namespace, err)
		return
	}
	for _, pod := range pods.Items {
		t.Logf("pod %s on %q: %s %s %s", pod.Name, pod.Spec.NodeName, pod.Status.Phase, pod.Status.Reason, pod.Status.Message)
		for _, status := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
			t.Logf("  container %s: %s", status.Name, status.State.String())
		}
	}
	events, err := client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	for _, event := range events.Items[max(0, len(events.Items)-30):] {
		t.Logf("event %s %s/%s %s: %s", event.LastTimestamp.Format(time.TimeOnly), event.InvolvedObject.Kind, event.InvolvedObject.Name, event.Reason, event.Message)
	}
}
