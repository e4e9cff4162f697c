package factory

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"idlecount.dev/idlecount/config"
)

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

// Dependents are the objects that the pod of a cold job needs beside it: for each service with variables of the job a
// Secret that holds them. They are created after the pod, which is their owner: the kubelet waits for them before it
// starts the service, and no crash between the two writes can leave one behind. pod is as the API server returned it.
func Dependents(pod *corev1.Pod, s Shape, job Job) []*corev1.Secret {
	// The services of the job are the last ones of the shape, in order; those without a name are in neither.
	var asked []Service
	for _, service := range job.Services {
		if service.Name != "" {
			asked = append(asked, service)
		}
	}
	var secrets []*corev1.Secret
	for i, service := range asked {
		data := secretData(service.Variables)
		if len(data) == 0 {
			continue
		}
		resolved := s.Services[len(s.Services)-len(asked)+i]
		secrets = append(secrets, &corev1.Secret{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			ObjectMeta: metav1.ObjectMeta{
				Name:      secretName(pod.Name, resolved.Name),
				Namespace: pod.Namespace,
				Labels: map[string]string{
					LabelRunner: pod.Labels[LabelRunner],
					LabelJob:    pod.Labels[LabelJob],
				},
				OwnerReferences: []metav1.OwnerReference{{
					APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID,
					BlockOwnerDeletion: new(false),
				}},
			},
			Immutable: new(true), // the kubelet needn't watch it
			Type:      corev1.SecretTypeOpaque,
			Data:      data,
		})
	}
	return secrets
}

// secretName is the name of the Secret of a pod's service; a pod's name is never used again.
func secretName(pod, service string) string { return pod + "-" + service }
