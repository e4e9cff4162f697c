package pool_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"idlecount.dev/idlecount/factory"
)

func TestIdlePodsFollowTheJobsUpAndDown(t *testing.T) {
	t.Parallel()
	g := newGround(t).needsKWOK()
	c := g.config("idle_count = 1", "scale_factor = 1.0", "scale_factor_limit = 4", kwok)
	m := g.manage(c)
	var jobs []*corev1.Pod
	for i, idle := range []int{1, 1, 2, 3, 4, 4, 4} {
		await(t, fmt.Sprintf("%d idle pods are wanted of %d jobs", idle, i), func() bool {
			return m.metric("idlecount_pods_wanted") == idle && m.metric("idlecount_pods", "state", "claimed") == i
		})
		g.view.await(t, "an idle pod is there", func() bool { return len(g.view.in(factory.Idle)) >= 1 })
		jobs = append(jobs, g.claim(c, fmt.Sprint(i+1)))
	}
	for i := range jobs {
		g.delete(jobs[i])
	}
	await(t, "without jobs the wish is idle_count again", func() bool {
		return m.metric("idlecount_pods_wanted") == 1 && m.metric("idlecount_pods", "state", "claimed") == 0
	})
	require.Positive(t, m.metric("idlecount_pods_created_total"))
}
