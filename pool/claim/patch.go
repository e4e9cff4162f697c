package claim

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/factory"
)

// binding is the JSON merge patch (RFC 7386) of a claim. The API server refuses it with a conflict when the pod has
// another resourceVersion or UID.
type binding struct {
	Metadata struct {
		UID             types.UID               `json:"uid"`
		ResourceVersion string                  `json:"resourceVersion"`
		Labels          map[string]string       `json:"labels"`
		Annotations     map[string]string       `json:"annotations"`
		OwnerReferences []metav1.OwnerReference `json:"ownerReferences"` // null removes all
	} `json:"metadata"`
	Spec *bindingSpec `json:"spec,omitempty"`
}

type bindingSpec struct {
	ActiveDeadlineSeconds int64 `json:"activeDeadlineSeconds"`
}

func bind(pod *corev1.Pod, runner config.Runner, job factory.JobMeta) ([]byte, error) {
	var b binding
	b.Metadata.UID = pod.UID
	b.Metadata.ResourceVersion = pod.ResourceVersion
	meta := factory.ClaimMetadata(runner, job, factory.Warm)
	b.Metadata.Labels, b.Metadata.Annotations = meta.Labels, meta.Annotations
	b.Metadata.OwnerReferences = withoutPool(pod)
	deadline := factory.ActiveDeadline(pod.Status.StartTime, job)
	// The API server lets activeDeadlineSeconds be set and lowered, never raised.
	if own := pod.Spec.ActiveDeadlineSeconds; deadline != nil && (own == nil || *deadline < *own) {
		b.Spec = &bindingSpec{ActiveDeadlineSeconds: *deadline}
	}
	return json.Marshal(b)
}

// withoutPool drops the pool's anchor from the owners, so that deleting a pool never ends a job. Owners that an admission
// controller added are not ours to drop.
func withoutPool(pod *corev1.Pod) []metav1.OwnerReference {
	left := slices.DeleteFunc(slices.Clone(pod.OwnerReferences), func(o metav1.OwnerReference) bool {
		return o.Kind == "ConfigMap" && o.Name == pod.Labels[factory.LabelPool]
	})
	if len(left) == 0 {
		return nil
	}
	return left
}
