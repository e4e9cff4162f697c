package pool_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestPodsWarmBeforeTheirPeriodBegins: idle_lead_time is there so that the count is ready when people come to work.
func TestPodsWarmBeforeTheirPeriodBegins(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	begins := time.Now().UTC().Add(20 * time.Minute)
	g.manage(g.config("idle_count = 0", nowhere, `idle_lead_time = "1h"`, fmt.Sprintf(`
    [[runners.kubernetes.idle_policy]]
      periods = ["%d %d * * *"]
      timezone = "UTC"
      idle_count = 2`, begins.Minute(), begins.Hour())))
	g.view.await(t, "the pods of the period that comes are made", func() bool { return len(g.view.all()) == 2 })
	g.view.await(t, "the status says for which", func() bool {
		for _, s := range g.view.statuses() {
			return s.Policy == "idle_policy[0] (ahead)" && s.Want == 2
		}
		return false
	})
	for _, s := range g.view.statuses() {
		require.Equal(t, begins.Truncate(time.Minute), s.NextChange.UTC())
	}
}
