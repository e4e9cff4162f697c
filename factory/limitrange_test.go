package factory

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"idlecount.dev/idlecount/config"
)

// ofContainers is a LimitRange as the API server stores it, with its own defaults filled in.
func ofContainers(item corev1.LimitRangeItem) *corev1.LimitRange {
	item.Type = corev1.LimitTypeContainer
	return &corev1.LimitRange{Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{
		{Type: corev1.LimitTypePod, Max: amounts("cpu", "1m")}, item,
	}}}
}

func sized(requests, limits corev1.ResourceList) corev1.Container {
	return corev1.Container{Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits}}
}

func TestEachContainerHasTheDefaultsOfALimitRange(t *testing.T) {
	ranges := []*corev1.LimitRange{
		ofContainers(corev1.LimitRangeItem{Default: amounts("cpu", "1", "memory", "1Gi"), DefaultRequest: amounts("cpu", "500m", "memory", "1Gi")}),
		ofContainers(corev1.LimitRangeItem{Default: amounts("cpu", "8"), DefaultRequest: amounts("cpu", "8", "ephemeral-storage", "1Gi")}),
	}
	spec := corev1.PodSpec{
		InitContainers: []corev1.Container{sized(nil, nil)},
		Containers:     []corev1.Container{sized(nil, nil), sized(amounts("cpu", "2"), amounts("cpu", "4")), sized(nil, amounts("memory", "2Gi"))},
	}
	before := spec.DeepCopy()
	got := Admitted(spec, ranges)
	require.Equal(t, *before, spec, "the argument has changed")
	for i, want := range []corev1.ResourceRequirements{
		{Requests: amounts("cpu", "500m", "memory", "1Gi", "ephemeral-storage", "1Gi"), Limits: amounts("cpu", "1", "memory", "1Gi")},
		{Requests: amounts("cpu", "2", "memory", "1Gi", "ephemeral-storage", "1Gi"), Limits: amounts("cpu", "4", "memory", "1Gi")},
		{Requests: amounts("cpu", "500m", "memory", "2Gi", "ephemeral-storage", "1Gi"), Limits: amounts("cpu", "1", "memory", "2Gi")},
	} {
		require.Equal(t, text(want.Requests), text(got.Containers[i].Resources.Requests))
		require.Equal(t, text(want.Limits), text(got.Containers[i].Resources.Limits))
	}
	require.Equal(t, text(got.Containers[0].Resources.Requests), text(got.InitContainers[0].Resources.Requests))
	f := Footprint(got)
	require.Equal(t, text(amounts("cpu", "3", "memory", "4Gi", "ephemeral-storage", "3Gi")), text(f.Requests))
	require.Equal(t, text(amounts("cpu", "6", "memory", "4Gi")), text(f.Limits))
}

func TestAPausePodIsSpreadWhereOneContainerWouldBeTooLarge(t *testing.T) {
	sidecar := sized(nil, nil)
	sidecar.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	job := corev1.PodSpec{InitContainers: []corev1.Container{sized(nil, nil), sidecar}, Containers: []corev1.Container{sized(nil, nil), sized(nil, nil)}}
	f := corev1.ResourceRequirements{
		Requests: amounts("cpu", "2500m", "memory", "1000", "nvidia.com/gpu", "1", "hugepages-2Mi", "4Mi"),
		Limits:   amounts("cpu", "3", "nvidia.com/gpu", "1", "hugepages-2Mi", "4Mi"),
	}
	most := func(pairs ...string) []*corev1.LimitRange {
		return []*corev1.LimitRange{ofContainers(corev1.LimitRangeItem{Max: amounts(pairs...)})}
	}
	require.Equal(t, []corev1.ResourceRequirements{f}, spread(f, job, nil))
	require.Equal(t, []corev1.ResourceRequirements{f}, spread(f, job, most("cpu", "3")))
	require.Len(t, spread(f, corev1.PodSpec{Containers: job.Containers[:1]}, most("cpu", "1")), 1, "the job is refused too")

	parts := spread(f, job, most("cpu", "1"))
	require.Len(t, parts, 3)
	sum := corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
	for _, p := range parts {
		require.LessOrEqual(t, p.Limits.Cpu().MilliValue(), int64(1000))
		add(sum.Requests, p.Requests)
		add(sum.Limits, p.Limits)
	}
	require.Equal(t, text(f.Requests), text(sum.Requests))
	require.Equal(t, text(f.Limits), text(sum.Limits))
	require.Equal(t, "334", parts[0].Requests.Memory().String())
	require.Equal(t, "333", parts[2].Requests.Memory().String())

	r := load(t, "pause")
	c, err := CapacityOf(r, "", most("cpu", "4"), func(config.PodSpec, *corev1.PodSpec) error { return nil })
	require.NoError(t, err)
	var names []string
	for _, container := range c.Template.Spec.Containers {
		names = append(names, container.Name)
	}
	require.Equal(t, []string{"pause", "pause-2", "pause-3", "pause-4"}, names)
}

func add(sum, list corev1.ResourceList) {
	for name, amount := range list {
		total := sum[name]
		total.Add(amount)
		sum[name] = total
	}
}
