package factory

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"path"

	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/entrypoint/wire"
)

// Shape is everything about a pod that a job can notice and that is fixed before the job is known. Both the hash and the
// pod are made from it and from nothing else, so two pods with one shape hash can't differ in what a job can see.
//
// The names in its JSON are what the hash is made of. They never change, and a field that a later release adds is left
// out of the JSON while it has its old meaning: else an upgrade would part every driver from its warm pods.
type Shape struct {
	Protocol         int               `json:"protocol"`
	Namespace        string            `json:"namespace"`
	Image            string            `json:"image"` // of build, as written
	PullPolicy       corev1.PullPolicy `json:"pull_policy"`
	HelperImage      string            `json:"helper_image"`
	HelperPullPolicy corev1.PullPolicy `json:"helper_pull_policy"`
	Build            Container         `json:"build,omitzero"`
	Helper           Container         `json:"helper,omitzero"`
	Services         []ShapeService    `json:"services,omitempty"`
	Security         PodSecurity       `json:"security,omitzero"`
	PullSecrets      []string          `json:"pull_secrets,omitempty"`
	NodeSelector     map[string]string `json:"node_selector,omitempty"`
	Tolerations      []Toleration      `json:"tolerations,omitempty"` // sorted by key and value
	ServiceAccount   string            `json:"service_account,omitempty"`
	AutomountToken   bool              `json:"automount_token,omitempty"`
	Labels           map[string]string `json:"labels,omitempty"`      // of pod_labels, raw: `$NAME` is expanded at the claim
	Annotations      map[string]string `json:"annotations,omitempty"` // of pod_annotations, raw
	BuildsDir        string            `json:"builds_dir"`
	CacheDir         string            `json:"cache_dir"`
	GracePeriod      *int64            `json:"grace_period,omitempty"` // seconds
	Affinity         string            `json:"affinity,omitempty"`     // in the JSON of the Kubernetes API, which doesn't change
	Scheduler        string            `json:"scheduler,omitempty"`
	PriorityClass    string            `json:"priority_class,omitempty"`
	RuntimeClass     string            `json:"runtime_class,omitempty"`
	Pod              Resources         `json:"pod,omitzero"` // of the pod as a whole
}

// Container is what build and helper have besides an image.
type Container struct {
	Resources Resources `json:"resources,omitzero"`
	Security  Security  `json:"security,omitzero"`
}

// Toleration is one of node_tolerations.
type Toleration struct {
	Key      string                    `json:"key,omitempty"`
	Operator corev1.TolerationOperator `json:"operator"`
	Value    string                    `json:"value,omitempty"`
	Effect   corev1.TaintEffect        `json:"effect,omitempty"`
}

// shapeBuilder is what the parts of ShapeOf share.
type shapeBuilder struct {
	path    string // of the [runners.kubernetes] table, for errors
	k       *config.Kubernetes
	pulling pulling
	pod     PodSecurity
}

// ShapeOf resolves what a job's pod looks like. An error is a *JobError where the job is to blame, else it names the key
// of config.toml.
func ShapeOf(r config.Runner, job Job) (Shape, error) {
	r = r.ForImage(job.Image) // the manager's pool of an image and a job with it must come to the same
	b := shapeBuilder{path: r.Path + ".kubernetes", k: &r.Kubernetes}
	var err error
	if b.pulling, err = pullingOf(b.path, b.k); err != nil {
		return Shape{}, err
	}
	if b.pod, err = podSecurity(b.path+".pod_security_context", b.k.PodSecurityContext); err != nil {
		return Shape{}, err
	}
	s := Shape{
		Protocol:       wire.Protocol,
		Namespace:      b.k.Namespace,
		Security:       b.pod,
		PullSecrets:    slices.Clone(b.k.ImagePullSecrets),
		NodeSelector:   maps.Clone(b.k.NodeSelector),
		Tolerations:    tolerations(b.k.NodeTolerations),
		ServiceAccount: b.k.ServiceAccount,
		AutomountToken: is(b.k.AutomountServiceAccountToken, true),
		GracePeriod:    clone(b.k.PodTerminationGracePeriodSeconds),
		Affinity:       affinityText(b.k.Affinity),
		Scheduler:      b.k.SchedulerName,
		PriorityClass:  b.k.PriorityClassName,
		RuntimeClass:   b.k.RuntimeClassName,
	}
	for _, part := range []func(*Shape, config.Runner, Job) error{b.images, b.containers, b.metadata, b.dirs} {
		if err := part(&s, r, job); err != nil {
			return Shape{}, err
		}
	}
	return s, nil
}

func (b shapeBuilder) images(s *Shape, _ config.Runner, job Job) error {
	s.Image, s.HelperImage = b.k.Image, b.k.HelperImage
	if job.Image != "" {
		s.Image = job.Image
	}
	if s.Image == "" {
		return fmt.Errorf("%s.image: neither the job nor the configuration names an image", b.path)
	}
	if s.HelperImage == "" {
		return fmt.Errorf("%s.helper_image: not set", b.path)
	}
	if err := noVariables(b.path+".image", s.Image); err != nil {
		return err
	}
	if err := noVariables(b.path+".helper_image", s.HelperImage); err != nil {
		return err
	}
	var err error
	if s.PullPolicy, err = b.pulling.policy(s.Image, job.PullPolicy); err != nil {
		return err
	}
	s.HelperPullPolicy, err = b.pulling.policy(s.HelperImage, nil)
	return err
}

// noVariables: GitLab expands a job's variables in image names, but a pool's images are pulled before there is a job.
func noVariables(path, image string) error {
	if strings.Contains(image, "$") {
		return fmt.Errorf("%s: %q holds a variable, but an idle pod is made before its job is known; write the image in full", path, image)
	}
	return nil
}

func (b shapeBuilder) containers(s *Shape, _ config.Runner, job Job) error {
	k := b.k
	var service ShapeService
	for _, c := range []struct {
		resources *Resources
		keys      quantityKeys
		security  *Security
		table     string
		context   config.ContainerSecurityContext
	}{
		{&s.Build.Resources, quantityKeys{
			b.path + ".", k.CPURequest, k.CPULimit, k.MemoryRequest, k.MemoryLimit,
			k.EphemeralStorageRequest, k.EphemeralStorageLimit,
		}, &s.Build.Security, "build", k.BuildContainerSecurityContext},
		{&s.Helper.Resources, quantityKeys{
			b.path + ".helper_", k.HelperCPURequest, k.HelperCPULimit, k.HelperMemoryRequest, k.HelperMemoryLimit,
			k.HelperEphemeralStorageRequest, k.HelperEphemeralStorageLimit,
		}, &s.Helper.Security, "helper", k.HelperContainerSecurityContext},
		{&service.Resources, quantityKeys{
			b.path + ".service_", k.ServiceCPURequest, k.ServiceCPULimit, k.ServiceMemoryRequest, k.ServiceMemoryLimit,
			k.ServiceEphemeralStorageRequest, k.ServiceEphemeralStorageLimit,
		}, &service.Security, "service", k.ServiceContainerSecurityContext},
	} {
		var err error
		if *c.resources, err = c.keys.resources(); err != nil {
			return err
		}
		table := b.path + "." + c.table + "_container_security_context"
		if *c.security, err = containerSecurity(table, k, b.pod, c.context); err != nil {
			return err
		}
	}
	s.Build.Security = s.Build.Security.withUser(job.User, b.pod, b.k)
	var err error
	if s.Pod, err = (quantityKeys{
		prefix: b.path + ".pod_", cpuRequest: k.PodCPURequest, cpuLimit: k.PodCPULimit,
		memoryRequest: k.PodMemoryRequest, memoryLimit: k.PodMemoryLimit,
	}).resources(); err != nil {
		return err
	}
	s.Services, err = b.services(job, service)
	return err
}

// dirs are the folders that jobs work in. The entrypoint's own must stay out of their reach and they out of its.
func (b shapeBuilder) dirs(s *Shape, r config.Runner, _ Job) error {
	for _, d := range []struct {
		key, written string
		to           *string
	}{{"builds_dir", r.BuildsDir, &s.BuildsDir}, {"cache_dir", r.CacheDir, &s.CacheDir}} {
		*d.to = path.Clean(d.written)
		switch {
		case !path.IsAbs(*d.to) || *d.to == "/":
			return fmt.Errorf("%s.%s: %q is not an absolute path below /", r.Path, d.key, d.written)
		case *d.to == wire.Dir || strings.HasPrefix(*d.to, wire.Dir+"/"):
			return fmt.Errorf("%s.%s: %q holds idlecount's own files in a pod (%s); choose another", r.Path, d.key, d.written, wire.Dir)
		}
	}
	return nil
}

// tolerations reads node_tolerations: "key=value" or "key" to an effect, which may be empty.
func tolerations(configured map[string]string) []Toleration {
	var all []Toleration
	for _, keyValue := range slices.Sorted(maps.Keys(configured)) {
		t := Toleration{Key: keyValue, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffect(configured[keyValue])}
		if key, value, ok := strings.Cut(keyValue, "="); ok {
			t.Key, t.Operator, t.Value = key, corev1.TolerationOpEqual, value
		}
		all = append(all, t)
	}
	return all
}

// Hash is the shape hash: short hex, equal for equal shapes whatever release of idlecount computes it.
func (s Shape) Hash() string {
	b, _ := json.Marshal(s.canonical()) //nolint:errchkjson // no field of Shape can fail
	return shortHash(b)
}

// canonical writes images so that those which are one image on every node are one text.
func (s Shape) canonical() Shape {
	s.Image, s.HelperImage = config.CanonicalImage(s.Image), config.CanonicalImage(s.HelperImage)
	s.Services = slices.Clone(s.Services)
	for i := range s.Services {
		s.Services[i].Image = config.CanonicalImage(s.Services[i].Image)
	}
	return s
}

// Difference is what two shapes differ in, by the ways in which Kubernetes lets a running pod change.
type Difference struct {
	Image     bool // of build: the kubelet restarts that container alone
	Resources bool // requests or limits of build or helper: resized in place
	Services  bool // what runs beside them
	// What else a job can choose, and the rest; each needs another pod.
	PullPolicy, User, Other bool
}

// Differs says what sets two shapes apart; the zero value means nothing, and exactly then their hashes are equal.
func Differs(a, b Shape) Difference {
	a, b = a.canonical(), b.canonical()
	d := Difference{
		Image:      a.Image != b.Image,
		Resources:  a.Build.Resources != b.Build.Resources || a.Helper.Resources != b.Helper.Resources,
		Services:   !equal(a.Services, b.Services),
		PullPolicy: a.PullPolicy != b.PullPolicy,
		User:       !equal(a.Build.Security.RunAsUser, b.Build.Security.RunAsUser) || !equal(a.Build.Security.RunAsGroup, b.Build.Security.RunAsGroup),
	}
	for _, s := range []*Shape{&a, &b} {
		s.Image, s.PullPolicy, s.Services = "", "", nil
		s.Build.Security.RunAsUser, s.Build.Security.RunAsGroup = nil, nil
		s.Build.Resources, s.Helper.Resources = Resources{}, Resources{}
	}
	d.Other = !equal(a, b)
	return d
}

// equal compares what would be hashed: nil and empty are the same there.
func equal(a, b any) bool {
	x, _ := json.Marshal(a) //nolint:errchkjson // parts of a Shape can't fail
	y, _ := json.Marshal(b) //nolint:errchkjson // parts of a Shape can't fail
	return bytes.Equal(x, y)
}

// String names the differences for people: "image, services"; "none" where there are none.
func (d Difference) String() string {
	var parts []string
	for _, p := range []struct {
		differs bool
		name    string
	}{{d.Image, "image"}, {d.Resources, "resources"}, {d.Services, "services"}, {d.PullPolicy, "pull policy"}, {d.User, "user"}, {d.Other, "other settings"}} {
		if p.differs {
			parts = append(parts, p.name)
		}
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}
