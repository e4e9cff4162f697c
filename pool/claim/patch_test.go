package claim

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/factory"
)

func TestBindNamesVersionUIDAndOwners(t *testing.T) {
	pod := readyPod("p", time.Minute)
	pod.ResourceVersion = "42"
	pod.Labels[factory.LabelPool] = "pool"
	pod.Status.StartTime = &metav1.Time{Time: noon.Add(-time.Hour)}
	pod.OwnerReferences = []metav1.OwnerReference{{Kind: "ConfigMap", Name: "pool"}, {Kind: "ConfigMap", Name: "somebody-else's"}}
	job := factory.JobMeta{ID: "7", ClaimedAt: noon, Timeout: 10 * time.Minute}

	patch, err := bind(&pod, config.Runner{}, job)
	require.NoError(t, err)
	var got corev1.Pod
	require.NoError(t, json.Unmarshal(patch, &got))
	require.Equal(t, "42", got.ResourceVersion)
	require.Equal(t, pod.UID, got.UID)
	require.Equal(t, "7", got.Labels[factory.LabelJob])
	require.Equal(t, factory.StateClaimed, got.Labels[factory.LabelState])
	require.Equal(t, "warm", got.Annotations[factory.AnnotationWarmth])
	require.Equal(t, "false", got.Annotations[factory.AnnotationSafeToEvict])
	require.Len(t, got.OwnerReferences, 1)
	require.Equal(t, "somebody-else's", got.OwnerReferences[0].Name)
	// Kubernetes counts from the start of the pod, an hour ago.
	require.Equal(t, new(int64((70*time.Minute+factory.DeadlineSlack)/time.Second)), got.Spec.ActiveDeadlineSeconds)
}

func TestBindRemovesTheOnlyOwnerExplicitly(t *testing.T) {
	pod := readyPod("p", time.Minute)
	pod.Labels[factory.LabelPool] = "pool"
	pod.OwnerReferences = []metav1.OwnerReference{{Kind: "ConfigMap", Name: "pool"}}
	patch, err := bind(&pod, config.Runner{}, factory.JobMeta{ID: "7", ClaimedAt: noon})
	require.NoError(t, err)
	require.Contains(t, string(patch), `"ownerReferences":null`, "a merge patch that leaves the key out leaves the owner in")
	require.NotContains(t, string(patch), "activeDeadlineSeconds", "a job without a timeout has no deadline")
}

func TestBindNeverRaisesADeadline(t *testing.T) {
	pod := readyPod("p", time.Minute)
	pod.Spec.ActiveDeadlineSeconds = new(int64(60))
	patch, err := bind(&pod, config.Runner{}, factory.JobMeta{ID: "7", ClaimedAt: noon, Timeout: time.Hour})
	require.NoError(t, err)
	require.NotContains(t, string(patch), "activeDeadlineSeconds", "the API server refuses a raised deadline, and with it the claim")
}
