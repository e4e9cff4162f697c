package factory

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"idlecount.dev/idlecount/capacity/patch"
	"idlecount.dev/idlecount/config"
)

func capacityOf(t testing.TB, r config.Runner, image string) Capacity {
	t.Helper()
	c, err := CapacityOf(r, image, nil, patch.Apply)
	require.NoError(t, err)
	return c
}

func TestGoldenPause(t *testing.T) {
	r := load(t, "pause")
	c := capacityOf(t, r, "")
	var got bytes.Buffer
	for _, object := range []any{
		PauseAnchor(r, c), PauseDeployment(r, c, 5, testAnchor), BufferTemplate(r, c, testAnchor),
		CapacityBuffer(r, c, "v1beta1", 5, testAnchor), PriorityClassOfPause(),
	} {
		text, err := yaml.Marshal(object)
		require.NoError(t, err)
		got.WriteString("---\n")
		got.Write(text)
	}
	golden := filepath.Join("testdata", "pause.yaml")
	if *update {
		require.NoError(t, os.WriteFile(golden, got.Bytes(), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err, "run: go test ./factory -update")
	require.Equal(t, string(want), got.String(), "if this is meant, run: go test ./factory -update")
}

func amounts(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

func TestAPausePodIsAsLargeAsTheWholeJob(t *testing.T) {
	always := new(corev1.ContainerRestartPolicyAlways)
	c := func(requests, limits corev1.ResourceList) corev1.Container {
		return corev1.Container{Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits}}
	}
	sidecar := func(requests corev1.ResourceList) corev1.Container {
		side := c(requests, nil)
		side.RestartPolicy = always
		return side
	}
	for sentence, tt := range map[string]struct {
		spec corev1.PodSpec
		want corev1.ResourceRequirements
	}{
		"containers and sidecars add up, in every resource": {
			corev1.PodSpec{
				InitContainers: []corev1.Container{sidecar(amounts("cpu", "500m", "memory", "1Gi"))},
				Containers:     []corev1.Container{c(amounts("cpu", "1", "ephemeral-storage", "10Gi"), nil), c(amounts("cpu", "250m"), nil)},
			},
			corev1.ResourceRequirements{Requests: amounts("cpu", "1750m", "memory", "1Gi", "ephemeral-storage", "10Gi")},
		},
		"an init container that needs more than all later ones decides": {
			corev1.PodSpec{
				InitContainers: []corev1.Container{c(amounts("memory", "8Gi"), nil)},
				Containers:     []corev1.Container{c(amounts("memory", "1Gi", "cpu", "1"), nil)},
			},
			corev1.ResourceRequirements{Requests: amounts("memory", "8Gi", "cpu", "1")},
		},
		"a limit without a request is requested, as the API server has it": {
			corev1.PodSpec{Containers: []corev1.Container{c(nil, amounts("memory", "1Gi")), c(amounts("memory", "1Gi"), amounts("memory", "2Gi"))}},
			corev1.ResourceRequirements{Requests: amounts("memory", "2Gi"), Limits: amounts("memory", "3Gi")},
		},
		"a limit that one container lacks is none of the pod": {
			corev1.PodSpec{Containers: []corev1.Container{c(amounts("cpu", "2"), nil), c(nil, amounts("cpu", "1"))}},
			corev1.ResourceRequirements{Requests: amounts("cpu", "3")},
		},
		"a device is requested and limited, though one container alone has it": {
			corev1.PodSpec{Containers: []corev1.Container{c(nil, amounts("nvidia.com/gpu", "2")), c(amounts("cpu", "1"), nil)}},
			corev1.ResourceRequirements{Requests: amounts("nvidia.com/gpu", "2", "cpu", "1"), Limits: amounts("nvidia.com/gpu", "2")},
		},
		"what stands at the pod itself bounds the limits": {
			corev1.PodSpec{
				Resources:  &corev1.ResourceRequirements{Requests: amounts("cpu", "6"), Limits: amounts("cpu", "8")},
				Containers: []corev1.Container{c(amounts("cpu", "1"), amounts("cpu", "5")), c(amounts("cpu", "1"), amounts("cpu", "5"))},
			},
			corev1.ResourceRequirements{Requests: amounts("cpu", "2"), Limits: amounts("cpu", "8")},
		},
		"the overhead of a runtime class is admission's to add": {
			corev1.PodSpec{Overhead: amounts("cpu", "1"), Containers: []corev1.Container{c(amounts("cpu", "1"), nil)}},
			corev1.ResourceRequirements{Requests: amounts("cpu", "1")},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			before := tt.spec.DeepCopy()
			got := Footprint(tt.spec)
			require.Equal(t, text(tt.want.Requests), text(got.Requests))
			require.Equal(t, text(tt.want.Limits), text(got.Limits))
			require.Equal(t, *before, tt.spec, "the argument has changed")
		})
	}
}

func text(list corev1.ResourceList) map[string]string {
	all := map[string]string{}
	for name, q := range list {
		all[string(name)] = q.String()
	}
	return all
}

func TestTheRoomOfAnIdlePodIsThatOfAPausePod(t *testing.T) {
	for name := range shapes {
		t.Run(name, func(t *testing.T) {
			r := load(t, name)
			pod := IdlePod(r, shapeOf(t, r, Job{}), "pod", 0, testAnchor)
			spec := capacityOf(t, r, "").Template.Spec
			require.Equal(t, Footprint(pod.Spec), spec.Containers[0].Resources)
			require.Equal(t, pod.Spec.NodeSelector, spec.NodeSelector)
			require.Equal(t, pod.Spec.Tolerations, spec.Tolerations)
			require.Equal(t, pod.Spec.Affinity, spec.Affinity)
		})
	}
}

func TestPatchesOfEachKind(t *testing.T) {
	for kind, patch := range map[string]string{
		"":          "nodeSelector: {disk: ssd}",
		"strategic": `{"nodeSelector": {"disk": "ssd"}}`,
		"merge":     "nodeSelector: {disk: ssd}",
		"json":      `[{"op": "add", "path": "/nodeSelector/disk", "value": "ssd"}]`,
	} {
		t.Run(kind, func(t *testing.T) {
			r := load(t, "pause")
			r.Kubernetes.PodSpec = []config.PodSpec{{Patch: patch, PatchType: kind}}
			require.Equal(t, map[string]string{"pool": "ci", "disk": "ssd"}, capacityOf(t, r, "").Template.Spec.NodeSelector)
		})
	}
	for sentence, unpatch := range map[string]func(*config.Runner){
		"the flag is off":              func(r *config.Runner) { r.FeatureFlags.AdvancedPodSpec = new(false) },
		"nobody has set it":            func(r *config.Runner) { r.FeatureFlags.AdvancedPodSpec = nil },
		"the pods of jobs are our own": func(r *config.Runner) { r.Executor = config.ExecutorCustom },
	} {
		t.Run(sentence, func(t *testing.T) {
			r := load(t, "pause")
			r.Kubernetes.PodSpec = []config.PodSpec{{Patch: "nodeSelector: {disk: ssd}"}}
			unpatch(&r)
			require.Equal(t, map[string]string{"pool": "ci"}, capacityOf(t, r, "").Template.Spec.NodeSelector)
			if r.Executor == config.ExecutorCustom {
				return
			}
			r.FeatureFlags.AdvancedPodSpec, r.Environment = nil, []string{"A=b", config.FlagPodSpec + "=true"}
			require.Equal(t, "ssd", capacityOf(t, r, "").Template.Spec.NodeSelector["disk"], "a variable of all jobs is as good")
			r.FeatureFlags.AdvancedPodSpec = new(false)
			require.Empty(t, capacityOf(t, r, "").Template.Spec.NodeSelector["disk"], "and the flag of the runner is stronger")
		})
	}
	r := load(t, "pause")
	r.Kubernetes.PodSpec = []config.PodSpec{{}, {Patch: `[{"op": "remove", "path": "/none"}]`, PatchType: "json"}}
	_, err := CapacityOf(r, "", nil, patch.Apply)
	require.ErrorContains(t, err, "runners[0].kubernetes.pod_spec[1].patch: can't be applied to the pod of a job")
}

func TestAnImageOfItsOwnSizeHasRoomOfItsOwn(t *testing.T) {
	r := load(t, "pause")
	r.Kubernetes.IdleOverrides = []config.IdleImage{{Image: "big:1", CPURequest: new("3")}}
	all, big := capacityOf(t, r, ""), capacityOf(t, r, "big:1")
	require.Equal(t, "pause-pau-pause", all.Name)
	require.NotEqual(t, all.Name, big.Name)
	extra := big.Template.Spec.Containers[0].Resources.Requests.Cpu().DeepCopy()
	extra.Sub(*all.Template.Spec.Containers[0].Resources.Requests.Cpu())
	require.Equal(t, "1", extra.String())
}

func TestTheHashOfACapacityChangesWithItsTemplateOnly(t *testing.T) {
	r := load(t, "pause")
	before := capacityOf(t, r, "")
	r.Kubernetes.IdleCount, r.Kubernetes.Image, r.Limit = 7, "other:2", 3
	require.Equal(t, before.Hash(), capacityOf(t, r, "").Hash())
	require.Equal(t, before.Name, capacityOf(t, r, "").Name)
	r.Kubernetes.HelperMemoryLimit = "1Gi"
	require.NotEqual(t, before.Hash(), capacityOf(t, r, "").Hash())
	require.Equal(t, before.Name, capacityOf(t, r, "").Name, "another size is a rollout, not another Deployment")
}

func TestTheStockTableNamesImageClassAndSecrets(t *testing.T) {
	r := load(t, "pause")
	r.Kubernetes.Autoscaler = config.Autoscaler{
		PausePodImage: "mirror/pause:3.10", PausePodPriorityClassName: "low", PausePodImagePullSecrets: []string{"mirror"},
	}
	spec := capacityOf(t, r, "").Template.Spec
	require.Equal(t, "mirror/pause:3.10", spec.Containers[0].Image)
	require.Empty(t, spec.Containers[0].Command, "it has an entrypoint of its own")
	require.Equal(t, "low", spec.PriorityClassName)
	require.Equal(t, []corev1.LocalObjectReference{{Name: "mirror"}}, spec.ImagePullSecrets)
}

func TestAClassThatJobsCouldNotPreemptIsRefused(t *testing.T) {
	class := func(name string, value int32, policy corev1.PreemptionPolicy) *schedulingv1.PriorityClass {
		return &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value, PreemptionPolicy: &policy}
	}
	lower := corev1.PreemptLowerPriority
	for sentence, c := range map[string]struct {
		pause, job *schedulingv1.PriorityClass
		refused    string
	}{
		"ours, and jobs that say nothing": {PriorityClassOfPause(), nil, ""},
		"a class of jobs above it":        {class("low", 5, lower), class("ci", 6, lower), ""},
		"no lower than nothing":           {class("zero", 0, lower), nil, "PriorityClass zero of the pause pods has the value 0, and the jobs, which have no PriorityClass, have 0"},
		"the same as the jobs'":           {class("ci", 6, lower), class("ci", 6, lower), "the jobs' PriorityClass ci has 6"},
		"jobs below it":                   {PriorityClassOfPause(), class("batch", -100, lower), "could never take a pause pod's place"},
		"jobs that preempt nobody":        {PriorityClassOfPause(), class("polite", 100, corev1.PreemptNever), "preemptionPolicy Never"},
	} {
		t.Run(sentence, func(t *testing.T) {
			err := CheckPausePriority(*c.pause, c.job)
			if c.refused == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.refused)
		})
	}
}
