package pool

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/pool/plan"
	"idlecount.dev/idlecount/pool/status"
)

func TestFailuresAreForgottenWhenTheTemplateChanges(t *testing.T) {
	now := at(100).Time
	learnt := func() *memory {
		m := &memory{template: "t1", history: plan.History{Failures: 3, Until: now.Add(time.Minute)}}
		m.refused = m.refused.after(now, plan.Shortfall{Reason: string(status.Admission)})
		return m
	}
	m := learnt()
	m.forgetAfterChange("t1")
	require.Equal(t, learnt(), m, "the same template is no news")
	m.forgetAfterChange("t2")
	require.Equal(t, &memory{template: "t2"}, m)

	m = learnt()
	m.template = ""
	m.forgetAfterChange("t1")
	require.Equal(t, 3, m.history.Failures, "the first pass changes nothing")
}

// TestPlaceBelowAQuotaIsMadeOnceAndThenUsed: pods that are given up and not replaced would be lost for nothing.
func TestPlaceBelowAQuotaIsMadeOnceAndThenUsed(t *testing.T) {
	now := at(100).Time
	m := &memory{}
	require.False(t, m.mayYield(now), "nothing is refused")
	m.refused = m.refused.after(now, plan.Shortfall{Reason: string(status.Admission)})
	require.False(t, m.mayYield(now), "place would be of no use")
	for range 5 {
		m.refused = m.refused.after(now, plan.Shortfall{Reason: string(status.Quota)})
	}
	require.True(t, m.mayYield(now))

	m.yield(now)
	require.False(t, m.mayYield(now.Add(time.Second)), "the place hasn't been used yet")
	require.Equal(t, now.Add(firstRefusal), m.refused.until, "the next try is due soon")
	m.createdAt = now.Add(3 * time.Second)
	m.refused = m.refused.after(now.Add(4*time.Second), plan.Shortfall{Reason: string(status.Quota)})
	require.True(t, m.mayYield(now.Add(4*time.Second)), "it was used, and more is wanted")
	m.yield(now.Add(4 * time.Second))
	require.True(t, m.mayYield(now.Add(4*time.Second+yieldAgain)), "somebody else has used it")
}
