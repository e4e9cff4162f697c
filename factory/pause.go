package factory

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/entrypoint/wire"
)

// LabelCapacity is the label of all that holds room for a runner's jobs: the anchor, the Deployment and its pause pods, or
// the PodTemplate and CapacityBuffer. Its value is their common name. None of them has LabelPool: they are no pool's.
const LabelCapacity = Prefix + "capacity"

// AnnotationSurplusSince is on a pause Deployment that holds more than is wanted: since when, RFC 3339. What is surplus
// goes an idle time later, whoever leads then.
const AnnotationSurplusSince = Prefix + "surplus-since"

// AnnotationGivenBack is on a pause pod whose room in a quota the driver of a job has asked for: since when, RFC 3339. The
// manager holds one fewer for it, and a pod-deletion-cost of -1 makes the ReplicaSet choose this one.
const AnnotationGivenBack = Prefix + "given-back"

// AnnotationGivenInVain is on a pod that a driver might have given back, had it not seen for its job that a quota doesn't count
// less when one goes: GivenInVain. GitLab Runner's next try of the job, which knows nothing of the one before, leaves the others.
const AnnotationGivenInVain = Prefix + "given-in-vain"

// GivenInVain is its value.
func GivenInVain(quota, jobID string) string { return quota + "/" + jobID }

// pauseContainer is the name of a pause pod's container, or of its first one.
const pauseContainer = "pause"

// Capacity is room for one job of a runner, as a template: a pod that nobody runs anything in, which is as large as the
// job's whole pod, goes where that would go, and takes there the place that it would take.
type Capacity struct {
	Name      string // of the objects that hold it
	Namespace string
	Image     string // the only job image that it is for; "" = all that have no room of their own
	Template  corev1.PodTemplateSpec
	Job       JobPriority
}

// JobPriority is what decides whether a job's pod may take a pause pod's place.
type JobPriority struct {
	Class string // the job's PriorityClass, "" = the cluster's default
}

// Patch applies one of [[runners.kubernetes.pod_spec]] to a pod; see capacity/patch. It is an argument since the driver, which
// makes pods with this package, would start slowly with it.
type Patch func(p config.PodSpec, spec *corev1.PodSpec) error

// PatchError is a patch that can't be applied.
type PatchError struct {
	Runner string // its path, e.g. runners[0]
	Key    string // its path below the runner
	Err    error
}

func (e *PatchError) Error() string { return fmt.Sprintf("%s.%s: %v", e.Runner, e.Key, e.Err) }

func (e *PatchError) Unwrap() error { return e.Err }

// CapacityOf is the room for one of the runner's jobs with an image; "" stands for those that have none of their own (see
// config.Runner.CapacityImages), under the LimitRanges of its namespace. The error names the key of config.toml; beside it the
// capacity has its name and place, and no template.
func CapacityOf(r config.Runner, image string, ranges []*corev1.LimitRange, patch Patch) (Capacity, error) {
	c := Capacity{Name: capacityName(r, image), Namespace: r.Kubernetes.Namespace, Image: image}
	s, job, err := jobSpec(r, image, patch)
	if err != nil {
		return c, err
	}
	c.Job.Class = job.PriorityClassName
	c.Template = corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{}, Annotations: map[string]string{}},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64(0)), // the job that takes its place waits for its end
			PriorityClassName:             PauseClassName(r),
			NodeSelector:                  job.NodeSelector,
			Affinity:                      job.Affinity,
			Tolerations:                   job.Tolerations,
			TopologySpreadConstraints:     job.TopologySpreadConstraints,
			SchedulerName:                 job.SchedulerName,
			RuntimeClassName:              job.RuntimeClassName, // admission adds its overhead, as it does to jobs
			ServiceAccountName:            job.ServiceAccountName,
			AutomountServiceAccountToken:  new(false),
			EnableServiceLinks:            new(false),
			SecurityContext:               &corev1.PodSecurityContext{},
			ImagePullSecrets:              pausePullSecrets(r, s),
		},
	}
	pauseSize(&c.Template.Spec, pauseMain(r), job, ranges)
	pauseMetadata(r, s, job, c.Name).over(c.Template.Labels, c.Template.Annotations)
	return c, nil
}

// capacityName is a valid DNS label and label value. It doesn't change when the configuration of the runner does, so that
// the Deployment stays the same one and rolls out.
func capacityName(r config.Runner, image string) string {
	suffix := "-pause"
	if image != "" {
		suffix += "-" + shortHash([]byte(config.CanonicalImage(image)))
	}
	return dnsLabel(r.ShortToken(), maxLabelValue-len(suffix)) + suffix
}

// pauseMetadata are a pause pod's labels and annotations: those that a job's pod gets from the configuration, and those that
// all jobs of the runner have. By them anti-affinities, topology spread, webhooks and autoscalers tell where it may go.
func pauseMetadata(r config.Runner, s Shape, job corev1.PodSpec, name string) Metadata {
	m := Metadata{Labels: map[string]string{}, Annotations: map[string]string{}}
	for _, key := range selectedOfJob(r, job) {
		m.Labels[key] = pauseValue
	}
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
	m.label(LabelGitLabManager, r.Name)
	m.label(LabelGitLabManagerID, r.ShortToken())
	m.Labels[LabelRunner] = RunnerLabel(r)
	m.Labels[LabelCapacity] = name
	m.Annotations[AnnotationSafeToEvict] = "true"
	return m
}

// PauseImage is the image of a runner's pause pods, and whether it is the entrypoint's.
func PauseImage(r config.Runner) (image string, ours bool) {
	if image := r.Kubernetes.Autoscaler.PausePodImage; image != "" {
		return image, false
	}
	return r.Kubernetes.IdleEntrypointImage, true
}

func pauseMain(r config.Runner) corev1.Container {
	image, ours := PauseImage(r)
	c := corev1.Container{
		Name: pauseContainer, Image: image, ImagePullPolicy: defaultPullPolicy(image),
		// A user is named only where the image's would be root: see initSecurity.
		SecurityContext: initSecurity(PodSecurity{}),
	}
	if ours {
		c.Command = []string{initBinary, wire.CommandPause}
	}
	return c
}

// pausePullSecrets: those of the stock table are for pause pods alone.
func pausePullSecrets(r config.Runner, s Shape) []corev1.LocalObjectReference {
	names := r.Kubernetes.Autoscaler.PausePodImagePullSecrets
	if len(names) == 0 {
		names = s.PullSecrets
	}
	var all []corev1.LocalObjectReference
	for _, name := range names {
		all = append(all, corev1.LocalObjectReference{Name: name})
	}
	return all
}

// jobSpec is the spec of a job's pod as far as it says where the pod goes and how large it is: that of our pods, or of
// those of GitLab's executor, with the patches of [[runners.kubernetes.pod_spec]] where and as that applies them.
func jobSpec(r config.Runner, image string, patch Patch) (Shape, corev1.PodSpec, error) {
	s, err := ShapeOf(placeholder(r.ForImage(image)), Job{})
	if err != nil {
		return Shape{}, corev1.PodSpec{}, err
	}
	pod := newPod(r, s, "job", 0)
	if r.Executor != config.ExecutorCustom {
		asGitLabs(&pod.Spec)
	}
	if !r.FollowsPodSpec() {
		return s, pod.Spec, nil
	}
	for i, p := range r.Kubernetes.PodSpec {
		if err := patch(p, &pod.Spec); err != nil {
			return Shape{}, corev1.PodSpec{}, &PatchError{r.Path, fmt.Sprintf("kubernetes.pod_spec[%d].patch", i), err}
		}
	}
	return s, pod.Spec, nil
}

// placeholder is the runner with other names where those of the configuration may be right for its executor and not for
// ours: room for a job knows nothing of images and folders.
func placeholder(r config.Runner) config.Runner {
	const image = "any"
	k := &r.Kubernetes
	k.Image, k.HelperImage, k.IdleOverrides = image, image, nil
	k.PullPolicy, k.AllowedPullPolicies = nil, nil
	r.BuildsDir, r.CacheDir = config.DefaultBuildsDir, config.DefaultCacheDir
	k.Services = slices.Clone(k.Services)
	for i := range k.Services {
		k.Services[i] = config.Service{Name: k.Services[i].Name}
		if strings.Contains(k.Services[i].Name, "$") {
			k.Services[i].Name = image
		}
	}
	return r
}

// asGitLabs makes of our pod what GitLab's executor makes: services are containers like the others, called svc-0, svc-1 …,
// and no init container of ours is there. Patches go by these names.
func asGitLabs(spec *corev1.PodSpec) {
	services := slices.DeleteFunc(spec.InitContainers, func(c corev1.Container) bool { return c.Name == InitContainer })
	for i := range services {
		services[i].Name = "svc-" + strconv.Itoa(i)
		services[i].RestartPolicy = nil
	}
	spec.Containers, spec.InitContainers = append(spec.Containers, services...), nil
}

// PauseAnchor is the object that owns what holds a capacity, and has its status.
func PauseAnchor(r config.Runner, c Capacity) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{
			Name: c.Name, Namespace: c.Namespace,
			Labels: map[string]string{LabelRunner: RunnerLabel(r), LabelCapacity: c.Name},
		},
	}
}

// PauseDeployment holds a capacity so many times. Its annotation AnnotationTemplate tells one that is as we would make it
// today from one that is out of date.
func PauseDeployment(r config.Runner, c Capacity, replicas int, anchor Owner) *appsv1.Deployment {
	d := &appsv1.Deployment{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{
			Name: c.Name, Namespace: c.Namespace,
			Labels:          map[string]string{LabelRunner: RunnerLabel(r), LabelCapacity: c.Name},
			Annotations:     map[string]string{AnnotationTemplate: c.Hash()},
			OwnerReferences: []metav1.OwnerReference{capacityOwner(anchor)},
		},
		Spec: pauseSpec(c),
	}
	d.Spec.Replicas = new(int32(min(replicas, 1<<31-1))) //nolint:gosec // bounded
	return d
}

func capacityOwner(anchor Owner) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: "v1", Kind: "ConfigMap", Name: anchor.Name, UID: anchor.UID,
		Controller: new(true), BlockOwnerDeletion: new(false),
	}
}

func pauseSpec(c Capacity) appsv1.DeploymentSpec {
	return appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{LabelCapacity: c.Name}},
		Template: *c.Template.DeepCopy(),
		Strategy: appsv1.DeploymentStrategy{
			Type: appsv1.RollingUpdateDeploymentStrategyType,
			// No surge: a new pod goes where an old one was, and no node is added for a rollout. All at once: nothing of worth
			// runs in them, and a rollout that waited for pods to become available would never replace those that no node fits.
			RollingUpdate: &appsv1.RollingUpdateDeployment{
				MaxSurge: new(intstr.FromInt32(0)), MaxUnavailable: new(intstr.FromString("100%")),
			},
		},
		RevisionHistoryLimit: new(int32(0)), // the configuration says what there is to go back to
	}
}

// Hash changes exactly when pause pods have to be made anew, or rolled out another way.
func (c Capacity) Hash() string {
	b, _ := json.Marshal(pauseSpec(c)) //nolint:errchkjson // a spec of ours can't fail
	return shortHash(b)
}

// PausePriorityClass is the class that idlecount brings, below every pod that says nothing of priority, so that any job
// takes a pause pod's place, and not below -10, under which the cluster autoscaler would add no node for it.
const PausePriorityClass = "idlecount-pause"

// PausePriority is the value of PausePriorityClass.
const PausePriority = -10

// PriorityClassOfPause is the object of that name.
func PriorityClassOfPause() *schedulingv1.PriorityClass {
	return &schedulingv1.PriorityClass{
		TypeMeta:         metav1.TypeMeta{APIVersion: schedulingv1.SchemeGroupVersion.String(), Kind: "PriorityClass"},
		ObjectMeta:       metav1.ObjectMeta{Name: PausePriorityClass},
		Value:            PausePriority,
		PreemptionPolicy: new(corev1.PreemptNever), // room that isn't there is not taken from others
		Description:      "Placeholders of idlecount that hold capacity for CI jobs.",
	}
}

// PauseClassName is the PriorityClass of a runner's pause pods: that of GitLab's table, else ours.
func PauseClassName(r config.Runner) string {
	if name := r.Kubernetes.Autoscaler.PausePodPriorityClassName; name != "" {
		return name
	}
	return PausePriorityClass
}

// CapacityBufferGroup is the API group of the cluster autoscaler's CapacityBuffer.
const CapacityBufferGroup = "autoscaling.x-k8s.io"

// BufferTemplate is the PodTemplate to which a CapacityBuffer refers.
func BufferTemplate(r config.Runner, c Capacity, anchor Owner) *corev1.PodTemplate {
	t := &corev1.PodTemplate{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodTemplate"},
		ObjectMeta: metav1.ObjectMeta{
			Name: c.Name, Namespace: c.Namespace,
			Labels:          map[string]string{LabelRunner: RunnerLabel(r), LabelCapacity: c.Name},
			Annotations:     map[string]string{AnnotationTemplate: c.Hash()},
			OwnerReferences: []metav1.OwnerReference{capacityOwner(anchor)},
		},
		Template: *c.Template.DeepCopy(),
	}
	// Nothing is ever run of it: a buffer is room in the autoscaler's books, which it makes as large as jobs need.
	t.Template.Spec.PriorityClassName = c.Job.Class
	return t
}

// CapacityBuffer is the CapacityBuffer that keeps a capacity so many times, in a version of its API.
func CapacityBuffer(r config.Runner, c Capacity, version string, replicas int, anchor Owner) map[string]any {
	owner := capacityOwner(anchor)
	return map[string]any{
		"apiVersion": CapacityBufferGroup + "/" + version, "kind": "CapacityBuffer",
		"metadata": map[string]any{
			"name": c.Name, "namespace": c.Namespace,
			"labels": map[string]any{LabelRunner: RunnerLabel(r), LabelCapacity: c.Name},
			"ownerReferences": []any{map[string]any{
				"apiVersion": owner.APIVersion, "kind": owner.Kind, "name": owner.Name, "uid": string(owner.UID),
				"controller": true, "blockOwnerDeletion": false,
			}},
		},
		"spec": map[string]any{
			"provisioningStrategy": "buffer.x-k8s.io/active-capacity",
			"podTemplateRef":       map[string]any{"name": c.Name},
			"replicas":             int64(replicas),
		},
	}
}

// PriorityError is why a job's pod could not take the place of a pause pod, and what to do about it.
type PriorityError struct{ Problem, Remedy string }

func (e *PriorityError) Error() string { return e.Problem + "; " + e.Remedy }

// CheckPausePriority says why a job's pod could not take the place of a pause pod, nil where it can. job is the job's
// class, nil where the job has none and the cluster no default: priority 0 then. The error is a PriorityError.
func CheckPausePriority(pause schedulingv1.PriorityClass, job *schedulingv1.PriorityClass) error {
	value, never := int32(0), false
	name := "the jobs, which have no PriorityClass, have 0"
	if job != nil {
		value = job.Value
		never = job.PreemptionPolicy != nil && *job.PreemptionPolicy == corev1.PreemptNever
		name = fmt.Sprintf("the jobs' PriorityClass %s has %d", job.Name, job.Value)
	}
	switch {
	case pause.Value >= value:
		return &PriorityError{
			fmt.Sprintf("the PriorityClass %s of the pause pods has the value %d, and %s: a job could never take a pause pod's place", pause.Name, pause.Value, name),
			"give the pause pods a class with a lower value",
		}
	case never:
		return &PriorityError{
			fmt.Sprintf("the jobs' PriorityClass %s has preemptionPolicy Never: a job would wait beside the pause pods for ever", job.Name),
			"name another class in priority_class_name",
		}
	}
	return nil
}
