package config

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/cron"
)

func TestForImage(t *testing.T) {
	r := loadCase(t, "valid-everything").Runners[0]
	before := r

	golang := r.ForImage("golang:1.26").Kubernetes
	require.Equal(t, "1", golang.CPURequest)
	require.Empty(t, golang.CPULimit, "an empty text takes the table's away")
	require.Equal(t, "1.5Gi", golang.MemoryRequest)
	require.Equal(t, "3G", golang.EphemeralStorageLimit)
	require.Equal(t, "128Mi", golang.HelperMemoryLimit)
	require.Equal(t, []Service{{Name: "redis:8", Alias: "cache"}}, golang.Services, "services are replaced")

	debian := r.ForImage("registry.example.com/debian:latest")
	require.Empty(t, debian.Kubernetes.Services, "an empty list is none")
	require.Equal(t, r.Kubernetes.CPULimit, debian.Kubernetes.CPULimit)
	require.Equal(t, debian, r.ForImage("registry.example.com/debian"), "no tag is latest")

	for _, other := range []string{"alpine:3.22", "", "golang:1.25", "golang"} {
		require.Equal(t, r, r.ForImage(other), other)
	}
	require.Equal(t, before, r, "the runner itself stays as it is")

	r.Kubernetes.Image = "golang:1.26"
	require.Equal(t, r.ForImage("golang:1.26"), r.ForImage(""), "a job that names no image has the table's")
}

func TestCanonicalImage(t *testing.T) {
	for image, want := range map[string]string{
		"alpine":                   "alpine:latest",
		"alpine:3.22":              "alpine:3.22",
		"registry:5000/a":          "registry:5000/a:latest",
		"registry:5000/a:1":        "registry:5000/a:1",
		"registry:5000/a@sha256:0": "registry:5000/a@sha256:0",
		"":                         "",
	} {
		require.Equal(t, want, CanonicalImage(image), image)
		require.Equal(t, want, CanonicalImage(want))
	}
	require.False(t, SameImage("alpine", "docker.io/library/alpine"), "what an unqualified name means is the node's business")
}

// TestTheCountOfAnImage: each case is a table, its policies ("" = absent) and the count of the image; wanted is what holds
// for it by the table and in each policy.
func TestTheCountOfAnImage(t *testing.T) {
	for rule, c := range map[string]struct {
		table    int
		policies []*int
		own      *int
		want     []int
	}{
		"it replaces the table's and the policies'":           {2, []*int{new(10), new(1)}, new(5), []int{5, 5, 5}},
		"a policy without a count has the image's":            {2, []*int{nil}, new(5), []int{5, 5}},
		"a policy of 0 is for all images":                     {2, []*int{new(0)}, new(5), []int{5, 0}},
		"a table of 0 is too, where policies have counts":     {0, []*int{new(10), nil}, new(5), []int{0, 5, 0}},
		"with no count elsewhere, it is the table's":          {0, nil, new(5), []int{5}},
		"with no count elsewhere, a policy of 0 still counts": {0, []*int{new(0), nil}, new(5), []int{5, 0, 5}},
		"an image can be left out":                            {2, []*int{new(10)}, new(0), []int{0, 0}},
		"without one, all is as it was":                       {2, []*int{new(10), nil, new(0)}, nil, []int{2, 10, 2, 0}},
	} {
		t.Run(rule, func(t *testing.T) {
			r := Runner{Kubernetes: Kubernetes{IdleCount: c.table, IdleOverrides: []IdleImage{{Image: "golang", IdleCount: c.own}}}}
			for _, count := range c.policies {
				r.Kubernetes.IdlePolicies = append(r.Kubernetes.IdlePolicies, IdlePolicy{IdleCount: count})
			}
			s, err := r.ScheduleFor("golang:latest")
			require.NoError(t, err)
			got := []int{s.Default.IdleCount}
			most := s.Default.IdleCount
			for _, p := range s.Policies {
				got = append(got, p.Values.IdleCount)
				most = max(most, p.Values.IdleCount)
			}
			require.Equal(t, c.want, got)
			count, _ := r.wants("golang:latest")
			require.Equal(t, most, count)

			s, err = r.ScheduleFor("another")
			require.NoError(t, err)
			require.Equal(t, c.table, s.Default.IdleCount)
		})
	}
}

func TestTheLeadTimeIsTheSchedules(t *testing.T) {
	s, err := Runner{Kubernetes: Kubernetes{IdleLeadTime: Duration{time.Minute}}}.ScheduleFor("a")
	require.NoError(t, err)
	require.Equal(t, time.Minute, s.Lead)
}

func TestTheStockAutoscalerTable(t *testing.T) {
	r := loadCase(t, "valid-warnings").Runners[1]
	require.True(t, r.Managed())
	require.False(t, r.HasIdle)
	s, err := r.ScheduleFor("alpine:3.22")
	require.NoError(t, err)
	require.Equal(t, cron.Values{IdleTime: DefaultIdleTime}, s.Default, "where no policy matches nothing is wanted")
	require.Equal(t, cron.Values{IdleCount: 10, IdleTime: 5 * time.Minute, ScaleFactor: 1.5, ScaleFactorLimit: 20}, s.Policies[0].Values)
	require.Equal(t, cron.Values{IdleTime: DefaultIdleTime}, s.Policies[1].Values, "nothing is inherited but the idle time")
	require.Equal(t, "Europe/Berlin", s.Policies[0].Periods[0].Timezone())
	require.Equal(t, "autoscaler.policy[0]", s.At(time.Date(2026, 1, 7, 12, 0, 0, 0, time.UTC)).Policy)

	a := r.Kubernetes.Autoscaler
	require.Equal(t, 10, a.MaxPausePods)
	require.Equal(t, "pause:3", a.PausePodImage)
	require.Equal(t, "idle", a.PausePodPriorityClassName)
	require.Equal(t, []string{"registry"}, a.PausePodImagePullSecrets)
	require.Equal(t, new(true), a.Policies[0].PreemptiveMode)

	r.Executor = executorKubernetes
	s, err = r.ScheduleFor("alpine:3.22")
	require.NoError(t, err)
	require.Empty(t, s.Policies, "there it is GitLab Runner's")
}
