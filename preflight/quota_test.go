package preflight

import (
	"slices"
	"testing"
	"time"
	_ "time/tzdata" // the tests mean the same zones everywhere

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/cron"
	"idlecount.dev/idlecount/internal/quota"
)

// monday is before the office opens.
var monday = time.Date(2026, 3, 2, 6, 0, 0, 0, time.UTC)

// wanting is a target of one-core pods, and of how many at night, and how many in the day.
func wanting(t *testing.T, runner string, limit, night, day int) *target {
	t.Helper()
	period, err := cron.ParsePeriod("* 8-17 * * mon-fri", "UTC")
	require.NoError(t, err)
	return &target{
		runner: config.Runner{Path: runner, Limit: limit},
		pod:    podOf("1", "2"),
		schedule: cron.Schedule{Default: cron.Values{IdleCount: night}, Policies: []cron.Policy{
			{Name: "day", Periods: []cron.Period{period}, Values: cron.Values{IdleCount: day}},
		}},
	}
}

// pausing makes of a target one of pause pods, with so much room left for jobs; nil = the default.
func pausing(t *target, headroom *int) *target {
	t.job = podOf("1", "2")
	t.runner.Kubernetes.IdleQuotaHeadroom = headroom
	return t
}

func podOf(request, limit string) *corev1.Pod {
	return &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(request)},
		Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(limit)},
	}}}}}
}

func quotaOf(hard, used map[string]string) *corev1.ResourceQuota {
	list := func(m map[string]string) corev1.ResourceList {
		l := corev1.ResourceList{}
		for k, v := range m {
			l[corev1.ResourceName(k)] = resource.MustParse(v)
		}
		return l
	}
	return &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "q"},
		Spec:       corev1.ResourceQuotaSpec{Hard: list(hard)}, Status: corev1.ResourceQuotaStatus{Used: list(used)},
	}
}

func TestQuotas(t *testing.T) {
	two := []*target{wanting(t, "a", 0, 1, 4), wanting(t, "b", 0, 3, 1)} // 4 at night, 5 in the day
	limited := []*target{wanting(t, "a", 3, 1, 4), wanting(t, "a", 3, 3, 1)}
	// Room for 1 job at night and 4 in the day, with room left for one more; beside it idle pods.
	room := []*target{pausing(wanting(t, "a", 0, 1, 4), nil)}
	both := []*target{wanting(t, "b", 0, 3, 1), pausing(wanting(t, "a", 0, 1, 4), nil), pausing(wanting(t, "a", 0, 1, 1), nil)}
	bounded := []*target{wanting(t, "a", 4, 3, 3), pausing(wanting(t, "a", 4, 5, 5), nil)}
	bounded[0].pod = podOf("2", "2")
	most := []*target{wanting(t, "a", 0, 3, 3), pausing(wanting(t, "a", 0, 5, 5), nil)}
	limitedMost := []*target{pausing(wanting(t, "a", 9, 5, 5), nil)}
	for _, p := range slices.Concat(most, limitedMost) {
		p.runner.Kubernetes.Autoscaler.MaxPausePods = 2
	}
	for sentence, c := range map[string]struct {
		targets []*target
		quota   *corev1.ResourceQuota
		ours    int // idle pods that are there
		status  Status
		message string
	}{
		"room for all": {
			two, quotaOf(map[string]string{"pods": "5", "requests.cpu": "6"}, nil), 0, OK,
			"idle pods fit at the most that policies want: pods: 5 of 5; requests.cpu: 5 of 6",
		},
		"never room for what is wanted together in the day": {
			two, quotaOf(map[string]string{"count/pods": "4"}, nil), 0, Fail,
			"idle pods alone need more than it allows: count/pods: 5 of 4 from Mon 08:00 UTC",
		},
		"never room for what is wanted now": {
			two, quotaOf(map[string]string{"cpu": "3500m"}, nil), 0, Fail, "cpu: 5 of 3500m from Mon 08:00 UTC",
		},
		"limits count apart": {two, quotaOf(map[string]string{"limits.cpu": "9"}, nil), 0, Fail, "limits.cpu: 10 of 9"},
		"what others use is not ours to have": {
			two, quotaOf(map[string]string{"pods": "6"}, map[string]string{"pods": "2"}), 0, Warn,
			"idle pods need more than is left: pods: 5 of 6 from Mon 08:00 UTC, where others use 2 now",
		},
		"what is idle already is part of what is wanted": {
			two, quotaOf(map[string]string{"pods": "6"}, map[string]string{"pods": "4"}), 3, OK, "pods: 5 of 6",
		},
		"a limit bounds what its runner wants": {limited, quotaOf(map[string]string{"pods": "3"}, nil), 0, OK, "pods: 3 of 3"},
		"a quota of other things":              {two, quotaOf(map[string]string{"configmaps": "1", "requests.memory": "1"}, nil), 0, OK, "idle pods don't count towards it"},
		"pause pods, and room beside them": {
			room, quotaOf(map[string]string{"requests.cpu": "5"}, nil), 0, OK,
			"pause pods fit at the most that policies want: requests.cpu: 5 of 5 (1 of it for jobs)",
		},
		"room beside pause pods that a quota doesn't have": {
			room, quotaOf(map[string]string{"requests.cpu": "4"}, nil), 0, Fail,
			"pause pods alone need more than it allows: requests.cpu: 5 of 4 (1 of it for jobs) from Mon 08:00 UTC",
		},
		"more room beside them, as the runner says": {
			[]*target{pausing(wanting(t, "a", 0, 1, 4), new(3))}, quotaOf(map[string]string{"pods": "6"}, nil), 0, Fail, "pods: 7 of 6 (3 of it for jobs)",
		},
		"none beside them": {
			[]*target{pausing(wanting(t, "a", 0, 1, 4), new(0))}, quotaOf(map[string]string{"pods": "4"}, nil), 0, OK, "pods: 4 of 4",
		},
		"idle pods and pause pods together, and room for jobs once": {
			both, quotaOf(map[string]string{"pods": "6"}, nil), 0, Fail,
			"idle pods and pause pods alone need more than it allows: pods: 7 of 6 (1 of it for jobs) from Mon 08:00 UTC",
		},
		"pause pods that are there are part of what is wanted": {
			room, quotaOf(map[string]string{"pods": "6"}, map[string]string{"pods": "3"}), 2, OK, "pods: 5 of 6",
		},
		"a limit leaves pause pods what idle pods don't take": {bounded, quotaOf(map[string]string{"cpu": "8"}, nil), 0, OK, "cpu: 8 of 8 (1 of it for jobs)"},
		"max_pause_pods bounds pause pods alone":              {most, quotaOf(map[string]string{"pods": "6"}, nil), 0, OK, "pods: 6 of 6 (1 of it for jobs)"},
		"max_pause_pods below the limit":                      {limitedMost, quotaOf(map[string]string{"pods": "3"}, nil), 0, OK, "pods: 3 of 3 (1 of it for jobs)"},
		"nothing is wanted":                                   {[]*target{wanting(t, "a", 0, 0, 0)}, quotaOf(map[string]string{"pods": "0"}, nil), 0, OK, "idle pods don't count towards it"},
	} {
		t.Run(sentence, func(t *testing.T) {
			var ours []corev1.Pod
			for range c.ours {
				ours = append(ours, *podOf("1", "2"))
			}
			r := fit(c.quota, c.targets, highest(c.targets, monday), ours)
			require.Equal(t, c.status, r.Status, r.Message)
			require.Contains(t, r.Message, c.message)
			require.Equal(t, "ci q", r.Namespace+" "+r.Object)
			require.Equal(t, c.status == OK, r.Fix == "")
		})
	}
}

// affine gives a pod an affinity with pods of a namespace, "" = its own.
func affine(namespace string) func(*corev1.Pod) {
	term := corev1.PodAffinityTerm{TopologyKey: "zone"}
	if namespace != "" {
		term.Namespaces = []string{namespace}
	}
	return func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: 1, PodAffinityTerm: term}},
		}}
	}
}

func TestScopesOfQuotas(t *testing.T) {
	with := func(change func(*corev1.Pod)) *corev1.Pod {
		pod := podOf("1", "1")
		change(pod)
		return pod
	}
	plain, empty := podOf("1", "1"), &corev1.Pod{}
	class := with(func(p *corev1.Pod) { p.Spec.PriorityClassName = "high" })
	for sentence, c := range map[string]struct {
		scope    corev1.ResourceQuotaScope
		operator corev1.ScopeSelectorOperator
		values   []string
		pod      *corev1.Pod
		want     bool
	}{
		"an idle pod has no deadline":           {corev1.ResourceQuotaScopeTerminating, "", nil, plain, false},
		"so it is not terminating":              {corev1.ResourceQuotaScopeNotTerminating, "", nil, plain, true},
		"a pod with requests is no best effort": {corev1.ResourceQuotaScopeBestEffort, "", nil, plain, false},
		"but is the opposite":                   {corev1.ResourceQuotaScopeNotBestEffort, "", nil, plain, true},
		"a pod without requests is":             {corev1.ResourceQuotaScopeBestEffort, "", nil, empty, true},
		"a class among those named":             {corev1.ResourceQuotaScopePriorityClass, corev1.ScopeSelectorOpIn, []string{"high"}, class, true},
		"no class among those named":            {corev1.ResourceQuotaScopePriorityClass, corev1.ScopeSelectorOpIn, []string{"high"}, plain, false},
		"a class that isn't named":              {corev1.ResourceQuotaScopePriorityClass, corev1.ScopeSelectorOpNotIn, []string{"high"}, plain, true},
		"any class":                             {corev1.ResourceQuotaScopePriorityClass, corev1.ScopeSelectorOpExists, nil, class, true},
		"no class":                              {corev1.ResourceQuotaScopePriorityClass, corev1.ScopeSelectorOpDoesNotExist, nil, class, false},
		"an affinity within the namespace":      {corev1.ResourceQuotaScopeCrossNamespacePodAffinity, "", nil, with(affine("")), false},
		"an affinity with another namespace":    {corev1.ResourceQuotaScopeCrossNamespacePodAffinity, "", nil, with(affine("other")), true},
	} {
		t.Run(sentence, func(t *testing.T) {
			q := &corev1.ResourceQuota{}
			if c.operator == "" {
				q.Spec.Scopes = []corev1.ResourceQuotaScope{c.scope}
			} else {
				q.Spec.ScopeSelector = &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{
					{ScopeName: c.scope, Operator: c.operator, Values: c.values},
				}}
			}
			require.Equal(t, c.want, quota.Applies(q, c.pod))
		})
	}
}

func TestAScheduleThatChangesEveryMinuteEnds(t *testing.T) {
	period, err := cron.ParsePeriod("*/2 * * * *", "UTC")
	require.NoError(t, err)
	busy := &target{pod: podOf("1", "1"), schedule: cron.Schedule{Policies: []cron.Policy{{Periods: []cron.Period{period}, Values: cron.Values{IdleCount: 2}}}}}
	require.Len(t, highest([]*target{busy}, monday), 2, "two moments are all that differ")
}
