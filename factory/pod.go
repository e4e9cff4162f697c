package factory

import (
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/entrypoint/wire"
)

// InitContainer is the name of the init container that brings the entrypoint.
const InitContainer = "entrypoint"

// Owner is a pool's anchor as it is in the cluster.
type Owner struct {
	Name string
	UID  types.UID
}

// IdlePod is a pod of a pool as we create it today, unclaimed. idleTime 0 turns the idle timer off.
func IdlePod(r config.Runner, s Shape, name string, idleTime time.Duration, anchor Owner) *corev1.Pod {
	pod := idlePod(r, s, idleTime)
	pod.Annotations[AnnotationTemplate] = hashPod(pod)
	pod.Name = name
	pod.OwnerReferences = []metav1.OwnerReference{{
		APIVersion:         "v1",
		Kind:               "ConfigMap",
		Name:               anchor.Name,
		UID:                anchor.UID,
		Controller:         new(true),
		BlockOwnerDeletion: new(false),
	}}
	return pod
}

// JobPod is the pod of a job that found no warm one: of the same shape, born claimed, with no owner and no idle timer.
func JobPod(r config.Runner, s Shape, name string, job JobMeta) *corev1.Pod {
	pod := idlePod(r, s, 0)
	pod.Name = name
	claim := ClaimMetadata(r, job, Cold)
	for k, v := range claim.Labels {
		pod.Labels[k] = v
	}
	for k, v := range claim.Annotations {
		pod.Annotations[k] = v
	}
	pod.Spec.ActiveDeadlineSeconds = ActiveDeadline(nil, job)
	return pod
}

// TemplateHash is the template hash of an idle pod as we would create it today with that idle time; its
// AnnotationTemplate has the same value.
func TemplateHash(r config.Runner, s Shape, idleTime time.Duration) string {
	return hashPod(idlePod(r, s, idleTime))
}

func hashPod(pod *corev1.Pod) string {
	b, _ := json.Marshal(pod) //nolint:errchkjson // a pod of ours always marshals
	return shortHash(b)
}

func idlePod(r config.Runner, s Shape, idleTime time.Duration) *corev1.Pod {
	return &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Namespace,
			Labels: map[string]string{
				LabelRunner: RunnerLabel(r),
				LabelPool:   PoolName(r, s),
				LabelShape:  s.Hash(),
				LabelState:  StateIdle,
			},
			Annotations: map[string]string{
				AnnotationImage:       s.Image,
				AnnotationIdleTime:    idleTime.String(),
				AnnotationSafeToEvict: "true",
			},
		},
		Spec: corev1.PodSpec{
			RestartPolicy:      corev1.RestartPolicyNever,
			EnableServiceLinks: new(false),
			InitContainers: []corev1.Container{{
				Name: InitContainer, Image: r.Kubernetes.IdleEntrypointImage,
				Command: []string{"/entrypoint", wire.CommandInstall},
			}},
			Containers: []corev1.Container{
				{Name: string(wire.Build), Image: s.Image, Command: []string{wire.Binary, wire.CommandServe}},
				{Name: string(wire.Helper), Image: s.HelperImage, Command: []string{wire.Binary, wire.CommandServe}},
			},
		},
	}
}

// Anchor is the object that owns a pool's idle pods and holds the pool's status.
func Anchor(r config.Runner, s Shape) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{
			Name:        PoolName(r, s),
			Namespace:   s.Namespace,
			Labels:      map[string]string{LabelRunner: RunnerLabel(r), LabelPool: PoolName(r, s), LabelShape: s.Hash()},
			Annotations: map[string]string{AnnotationImage: s.Image},
		},
	}
}

// Dependents are the objects that a job's pod needs beside it, owned by the pod, to be created after it: the variables of
// the job's services, one Secret a service that has any.
func Dependents(pod *corev1.Pod, job Job) []*corev1.Secret {
	return nil
}
