package cluster_test

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"idlecount.dev/idlecount/e2e/cluster"
	"idlecount.dev/idlecount/e2e/cluster/clustertest"
)

func TestAPodRunsOnTheRealNode(t *testing.T) {
	c, config := localConfig(t)
	client, namespace := clientset(t, config), clustertest.Namespace(t)
	pod := running(t, client, namespace, probePod(probeReference(t, c)))
	require.Equal(t, cluster.NodeName, pod.Spec.NodeName)
	require.True(t, strings.HasPrefix(pod.Status.PodIP, "10.98."), pod.Status.PodIP)

	t.Run("its log can be read", func(t *testing.T) {
		log, err := client.CoreV1().Pods(namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Follow: true, LimitBytes: new(int64(16))}).Stream(within(t, patience))
		require.NoError(t, err)
		defer log.Close()
		text, err := io.ReadAll(log)
		require.NoError(t, err)
		require.Equal(t, "probe is waiting", string(text))
	})
	t.Run("it reaches the API at the cluster's address with its token, and may do what RBAC allows", func(t *testing.T) {
		secrets := "/api/v1/namespaces/" + namespace + "/secrets"
		out, err := execIn(within(t, patience), config, namespace, pod.Name, "/pause", "api", "/api", secrets)
		require.NoError(t, err, out)
		require.Equal(t, "200 /api\n403 "+secrets, out)

		allowSecrets(t, client, namespace)
		require.Eventually(t, func() bool {
			out, err = execIn(t.Context(), config, namespace, pod.Name, "/pause", "api", secrets)
			return err == nil && out == "200 "+secrets
		}, patience, pollInterval, "after the role was given: %s", out)
	})
}

func allowSecrets(t *testing.T, client kubernetes.Interface, namespace string) {
	t.Helper()
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"list"}}},
	}
	_, err := client.RbacV1().Roles(namespace).Create(t.Context(), role, metav1.CreateOptions{})
	require.NoError(t, err)
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "default", Namespace: namespace}},
	}
	_, err = client.RbacV1().RoleBindings(namespace).Create(t.Context(), binding, metav1.CreateOptions{})
	require.NoError(t, err)
}

func TestAMissingImageIsAPullErrorOfTheRegistry(t *testing.T) {
	c, config := localConfig(t)
	client, namespace := clientset(t, config), clustertest.Namespace(t)
	pod := probePod(c.Registry() + "/no/such/image:1")
	_, err := client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
	pod = waitPod(t, client, namespace, pod.Name, "failed to pull", func(pod *corev1.Pod) bool {
		statuses := pod.Status.ContainerStatuses
		return len(statuses) > 0 && statuses[0].State.Waiting != nil && statuses[0].State.Waiting.Reason == "ErrImagePull"
	})
	require.Contains(t, pod.Status.ContainerStatuses[0].State.Waiting.Message, "not found")
}

func TestAQuotaIsEnforced(t *testing.T) {
	_, config := localConfig(t)
	client, namespace := clientset(t, config), clustertest.Namespace(t)
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "none"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}},
	}
	_, err := client.CoreV1().ResourceQuotas(namespace).Create(t.Context(), quota, metav1.CreateOptions{})
	require.NoError(t, err)
	// Until the quota's controller has counted, the API server refuses with another message.
	require.Eventually(t, func() bool {
		_, err = client.CoreV1().Pods(namespace).Create(t.Context(), probePod("any"), metav1.CreateOptions{})
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota")
	}, patience, pollInterval, "%v", err)
}

func TestWhatAPodOwnsGoesWithIt(t *testing.T) {
	_, config := localConfig(t)
	client, namespace := clientset(t, config), clustertest.Namespace(t)
	pod := probePod("any")
	pod.Spec.NodeSelector = map[string]string{"no": "such-node"}
	pod, err := client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
	owned := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name:            "owned",
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}},
	}}
	_, err = client.CoreV1().ConfigMaps(namespace).Create(t.Context(), owned, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, client.CoreV1().Pods(namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{}))
	require.Eventually(t, func() bool {
		_, err := client.CoreV1().ConfigMaps(namespace).Get(t.Context(), "owned", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, patience, pollInterval)
}

func TestAdmissionIsThatOfARealCluster(t *testing.T) {
	_, config := localConfig(t)
	client, namespace := clientset(t, config), clustertest.Namespace(t)

	t.Run("a priority class that does not exist", func(t *testing.T) {
		pod := probePod("any")
		pod.Spec.PriorityClassName = "no-such-class"
		_, err := client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
		require.True(t, apierrors.IsForbidden(err), "%v", err)
		require.ErrorContains(t, err, "no-such-class")
	})
	t.Run("Pod Security", func(t *testing.T) {
		_, err := client.CoreV1().Namespaces().Patch(t.Context(), namespace, "application/merge-patch+json",
			[]byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`), metav1.PatchOptions{})
		require.NoError(t, err)
		// The API server's own view of the namespace may lag.
		require.Eventually(t, func() bool {
			_, err = client.CoreV1().Pods(namespace).Create(t.Context(), probePod("any"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "restricted")
		}, patience, pollInterval, "%v", err)
	})
}

func TestPodsOnlyLandOnKWOKNodesWhenTheyAsk(t *testing.T) {
	_, config := localConfig(t)
	client, namespace := clientset(t, config), clustertest.Namespace(t)
	nodes, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{LabelSelector: "type=kwok"})
	require.NoError(t, err)
	if len(nodes.Items) == 0 {
		t.Skip("no KWOK nodes; make some with: go run ./e2e/cmd/cluster up --kwok 3")
	}
	pod := probePod("never/pulled:1")
	pod.Spec.NodeSelector = cluster.KWOKNodeSelector()
	pod.Spec.Tolerations = []corev1.Toleration{cluster.KWOKToleration()}
	pod = running(t, client, namespace, pod)
	require.True(t, strings.HasPrefix(pod.Spec.NodeName, "kwok-"), pod.Spec.NodeName)

	selecting := probePod("never/pulled:1")
	selecting.Name = "intolerant"
	selecting.Spec.NodeSelector = cluster.KWOKNodeSelector()
	_, err = client.CoreV1().Pods(namespace).Create(t.Context(), selecting, metav1.CreateOptions{})
	require.NoError(t, err)
	waitPod(t, client, namespace, "intolerant", "was refused by the scheduler", func(pod *corev1.Pod) bool {
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
				return strings.Contains(condition.Message, "untolerated taint")
			}
		}
		return false
	})
}
