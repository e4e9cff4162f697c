package manifests

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"idlecount.dev/idlecount/factory"
)

// MetricsPort is where the manager serves /metrics, /healthz and /readyz. GitLab Runner's own is 9252, and both may share
// a host.
const MetricsPort = 9402

// configDir is where the Secret is mounted.
const configDir = "/etc/idlecount"

// nonRoot is the user of our images.
const nonRoot = 65532

func pausePriority() document {
	class := factory.PriorityClassOfPause()
	class.Labels = labels(componentShared)
	return document{
		comment: `The priority of pause pods, which hold capacity and give way to any job. It is an object of the whole cluster:
whoever may not make it can leave it out while no runner keeps pause pods (idle_strategy = "pause", idle_pause_count).
All installations share it: leave it where it is while there is another one.`,
		object: class,
	}
}

func configuration(o Options) document {
	data := map[string]string{}
	for n, file := range o.Config {
		data[configKey(n)] = string(file)
	}
	return document{
		comment: `What the manager reads of config.toml: no runner token (its first characters name the runner), no cache or
registry credential, and nothing of how GitLab Runner itself reaches the cluster.`,
		object: &corev1.Secret{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: SecretName, Labels: labels(componentManager)},
			StringData: data,
		},
	}
}

// manager is the Deployment. Two replicas: one leads, the other takes over within the lease's duration.
func manager(o Options) document {
	comment := "The manager. One replica leads, the other takes over; jobs claim pods without either."
	if len(o.Config) == 0 {
		comment += fmt.Sprintf("\nIts configuration is not in here: kubectl -n %s create secret generic %s --from-file=%s",
			o.Namespace, SecretName, configKey(0))
	}
	selector := labels(componentManager)
	return document{comment: comment, object: &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: Name, Labels: labels(componentManager)},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(2)),
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType},
			Selector: &metav1.LabelSelector{MatchLabels: selector},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: selector, Annotations: annotations(o.Config)},
				Spec: corev1.PodSpec{
					ServiceAccountName: Name,
					SecurityContext: &corev1.PodSecurityContext{
						RunAsNonRoot: new(true), RunAsUser: new(int64(nonRoot)), RunAsGroup: new(int64(nonRoot)),
						SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
					},
					TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
						MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway,
						LabelSelector: &metav1.LabelSelector{MatchLabels: selector},
					}},
					Containers: []corev1.Container{container(o)},
					Volumes: []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{
						Secret: &corev1.SecretVolumeSource{SecretName: SecretName},
					}}},
				},
			},
		},
	}}
}

func container(o Options) corev1.Container {
	args := []string{"run", "--log-format=json", fmt.Sprintf("--listen-address=:%d", MetricsPort)}
	for n := range max(1, len(o.Config)) {
		args = append(args, "--config="+configDir+"/"+configKey(n))
	}
	return corev1.Container{
		Name:  "manager",
		Image: o.Image,
		Args:  args,
		Ports: []corev1.ContainerPort{{Name: "metrics", ContainerPort: MetricsPort}},
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
		// No limit on CPU: a manager that is throttled is late for a burst of jobs.
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("50m"), corev1.ResourceMemory: resource.MustParse("64Mi")},
			Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")},
		},
		LivenessProbe:  probe("/healthz", 10),
		ReadinessProbe: probe("/readyz", 5),
		VolumeMounts:   []corev1.VolumeMount{{Name: "config", MountPath: configDir, ReadOnly: true}},
	}
}

func probe(path string, period int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromString("metrics")}},
		PeriodSeconds: period,
	}
}

// annotations are those of the manager's pods: a changed configuration is a changed template, so that applying it restarts the
// managers, and a Prometheus that goes by these annotations, as many do, finds where to scrape.
func annotations(config [][]byte) map[string]string {
	found := map[string]string{
		"prometheus.io/scrape": "true", "prometheus.io/port": strconv.Itoa(MetricsPort), "prometheus.io/path": "/metrics",
	}
	if len(config) > 0 {
		sum := sha256.Sum256(bytes.Join(config, []byte{0}))
		found[factory.Prefix+"config"] = hex.EncodeToString(sum[:8])
	}
	return found
}

// configKey names the nth file of the configuration in the Secret.
func configKey(n int) string {
	if n == 0 {
		return "config.toml"
	}
	return fmt.Sprintf("config-%d.toml", n+1)
}
