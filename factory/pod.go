package factory

import (
	"encoding/json"
	"maps"
	"path"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/entrypoint/wire"
)

// InitContainer is the name of the init container that brings the entrypoint.
const InitContainer = "entrypoint"

// initBinary is where the init image holds the entrypoint.
const initBinary = "/entrypoint"

// Volumes of a pod. All are emptyDirs: what a job leaves behind goes with its pod.
const (
	volumeEntrypoint = "idlecount" // at wire.Dir in the init container
	volumeBuilds     = "builds"
	volumeCache      = "cache"
)

// Owner is a pool's anchor as it is in the cluster.
type Owner struct {
	Name string
	UID  types.UID
}

// IdlePod is a pod of a pool as we create it today, unclaimed. idleTime 0 turns the idle timer off.
func IdlePod(r config.Runner, s Shape, name string, idleTime time.Duration, anchor Owner) *corev1.Pod {
	pod := newPod(r, s, name, idleTime)
	pod.Annotations[AnnotationTemplate] = TemplateHash(r, s, idleTime)
	pod.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "v1", Kind: "ConfigMap", Name: anchor.Name, UID: anchor.UID,
		Controller: new(true),
		// Nobody has to wait for the pods when a pool's anchor is deleted.
		BlockOwnerDeletion: new(false),
	}}
	return pod
}

// JobPod is the pod of a job that found no warm one: of the same shape, born claimed, with no owner. Its idle timer only
// ends what a driver left that died before it came to say whose the pod is; from then on it is the abandon time's business.
func JobPod(r config.Runner, s Shape, name string, job JobMeta) *corev1.Pod {
	pod := newPod(r, s, name, max(r.Kubernetes.IdleAbandonTime.Duration, time.Duration(r.Kubernetes.PollTimeout)*time.Second))
	ClaimMetadata(r, job, Cold).over(pod.Labels, pod.Annotations)
	pod.Spec.ActiveDeadlineSeconds = ActiveDeadline(nil, job)
	return pod
}

// TemplateHash is the template hash of an idle pod as we would create it today with that idle time; its
// AnnotationTemplate has the same value. Whoever wants to know whether a pod is out of date for another reason than its
// idle time asks with the pod's own (AnnotationIdleTime).
func TemplateHash(r config.Runner, s Shape, idleTime time.Duration) string {
	b, _ := json.Marshal(newPod(r, s, "", idleTime)) //nolint:errchkjson // a pod of ours can't fail
	return shortHash(b)
}

// newPod is what idle pods and the pods of cold jobs have in common; nothing in it is shared with its arguments.
func newPod(r config.Runner, s Shape, name string, idleTime time.Duration) *corev1.Pod {
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: s.Namespace,
			Labels: map[string]string{}, Annotations: map[string]string{},
		},
		Spec: corev1.PodSpec{
			InitContainers: append([]corev1.Container{initContainer(r, s)}, sidecars(s, name)...),
			Containers: []corev1.Container{
				mainContainer(r, s, wire.Build, idleTime),
				mainContainer(r, s, wire.Helper, idleTime),
			},
			Volumes:                       volumes(s),
			RestartPolicy:                 corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: clone(s.GracePeriod),
			NodeSelector:                  maps.Clone(s.NodeSelector),
			Affinity:                      parseAffinity(s.Affinity),
			SchedulerName:                 s.Scheduler,
			PriorityClassName:             s.PriorityClass,
			ServiceAccountName:            s.ServiceAccount,
			AutomountServiceAccountToken:  new(s.AutomountToken),
			SecurityContext:               s.Security.context(),
			HostAliases:                   hostAliases(s),
			// A pool's pod would carry the addresses of all Services of its namespace into a job's environment.
			EnableServiceLinks: new(false),
		},
	}
	if s.RuntimeClass != "" {
		pod.Spec.RuntimeClassName = new(s.RuntimeClass)
	}
	if s.Pod != (Resources{}) {
		pod.Spec.Resources = new(s.Pod.requirements())
	}
	for _, secret := range s.PullSecrets {
		pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: secret})
	}
	for _, t := range s.Tolerations {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations,
			corev1.Toleration{Key: t.Key, Operator: t.Operator, Value: t.Value, Effect: t.Effect})
	}
	birthMetadata(r, s, idleTime).over(pod.Labels, pod.Annotations)
	return pod
}

// birthMetadata is what a pod carries from its birth: the user's keys whose values need no job, then ours.
func birthMetadata(r config.Runner, s Shape, idleTime time.Duration) Metadata {
	m := Metadata{Labels: map[string]string{}, Annotations: map[string]string{}}
	for key, value := range s.Labels {
		if !ofJob(value) {
			m.Labels[key] = labelValue(value)
		}
	}
	for key, value := range s.Annotations {
		if !ofJob(value) {
			m.Annotations[key] = value
		}
	}
	m.Labels[LabelRunner] = RunnerLabel(r)
	m.Labels[LabelPool] = PoolName(r, s)
	m.Labels[LabelShape] = s.Hash()
	m.Labels[LabelState] = StateIdle
	m.Annotations[AnnotationImage] = s.Image
	m.Annotations[AnnotationIdleTime] = idleTime.String()
	// An idle pod must not keep its node from being scaled down; nothing is lost with it.
	m.Annotations[AnnotationSafeToEvict] = "true"
	return m
}

// initContainer copies the entrypoint into the volume that the others run it from. It has the helper's resources: limits
// where a quota asks for them, and never more than the pod needs afterwards.
func initContainer(r config.Runner, s Shape) corev1.Container {
	image := r.Kubernetes.IdleEntrypointImage
	policy := defaultPullPolicy(image) // ShapeOf has found that the others can be had
	if pulling, err := pullingOf("", &r.Kubernetes); err == nil {
		if allowed, err := pulling.policy(image, nil); err == nil {
			policy = allowed
		}
	}
	return corev1.Container{
		Name: InitContainer, Image: image, ImagePullPolicy: policy,
		Command:         []string{initBinary, wire.CommandInstall},
		Resources:       s.Helper.Resources.requirements(),
		SecurityContext: initSecurity(s.Security),
		VolumeMounts:    []corev1.VolumeMount{{Name: volumeEntrypoint, MountPath: wire.Dir}},
	}
}

// mainContainer is build or helper: its image with the entrypoint as PID 1 in place of whatever the image would start.
func mainContainer(r config.Runner, s Shape, role wire.Role, idleTime time.Duration) corev1.Container {
	image, policy, c := s.Image, s.PullPolicy, s.Build
	if role == wire.Helper {
		image, policy, c = s.HelperImage, s.HelperPullPolicy, s.Helper
	}
	return corev1.Container{
		Name: string(role), Image: image, ImagePullPolicy: policy,
		Command: []string{wire.Binary, wire.CommandServe},
		Env: []corev1.EnvVar{
			{Name: wire.EnvRole, Value: string(role)},
			{Name: wire.EnvIdleTime, Value: idleTime.String()},
			{Name: wire.EnvAbandonTime, Value: r.Kubernetes.IdleAbandonTime.String()},
		},
		Resources:       c.Resources.requirements(),
		SecurityContext: c.Security.context(),
		VolumeMounts:    append(entrypointMounts(), workMounts(s)...),
	}
}

// entrypointMounts are the two folders that the init container made, each by itself: the volume is everybody's to write,
// so what lies in it could be moved away and replaced by any user of one container, and be run as another user in the
// other one. A mount can't be moved, and in RunDir nobody can move what isn't theirs.
func entrypointMounts() []corev1.VolumeMount {
	bin, run := path.Dir(wire.Binary), wire.RunDir
	return []corev1.VolumeMount{
		{Name: volumeEntrypoint, MountPath: bin, SubPath: path.Base(bin), ReadOnly: true},
		{Name: volumeEntrypoint, MountPath: run, SubPath: path.Base(run)},
	}
}

// sidecars are the services: init containers that go on running and end with the main containers, so that a database
// doesn't keep a pod alive whose job is over.
func sidecars(s Shape, pod string) []corev1.Container {
	var all []corev1.Container
	for _, service := range s.Services {
		c := corev1.Container{
			Name: service.Name, Image: service.Image, ImagePullPolicy: service.PullPolicy,
			RestartPolicy:   new(corev1.ContainerRestartPolicyAlways),
			Command:         slices.Clone(service.Entrypoint),
			Args:            slices.Clone(service.Command),
			Resources:       service.Resources.requirements(),
			SecurityContext: service.Security.context(),
			VolumeMounts:    workMounts(s),
		}
		for _, v := range service.Env {
			c.Env = append(c.Env, corev1.EnvVar{Name: v.Name, Value: v.Value})
		}
		if len(service.SecretEnv) > 0 {
			c.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: secretName(pod, service.Name)},
			}}}
		}
		all = append(all, c)
	}
	return all
}

func workMounts(s Shape) []corev1.VolumeMount {
	mounts := []corev1.VolumeMount{{Name: volumeBuilds, MountPath: s.BuildsDir}}
	if s.CacheDir != s.BuildsDir {
		mounts = append(mounts, corev1.VolumeMount{Name: volumeCache, MountPath: s.CacheDir})
	}
	return mounts
}

func volumes(s Shape) []corev1.Volume {
	all := []corev1.Volume{{Name: volumeEntrypoint, VolumeSource: emptyDir()}}
	for _, mount := range workMounts(s) {
		all = append(all, corev1.Volume{Name: mount.Name, VolumeSource: emptyDir()})
	}
	return all
}

func emptyDir() corev1.VolumeSource {
	return corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
}

// hostAliases let a job reach its services by name: all containers of a pod share one loopback address.
func hostAliases(s Shape) []corev1.HostAlias {
	var names []string
	for _, service := range s.Services {
		for _, name := range service.Hostnames {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	if len(names) == 0 {
		return nil
	}
	return []corev1.HostAlias{{IP: "127.0.0.1", Hostnames: names}}
}
