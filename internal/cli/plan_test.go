package cli

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/pool"
	"idlecount.dev/idlecount/pool/plan"
)

func TestTablesOfPlans(t *testing.T) {
	previews := []pool.Preview{
		{
			Namespace: "ci", Name: "fakefakef-0a1b2c3d4e", Runner: "ci", Image: "alpine:3.22", Policy: "default", Want: 2, Idle: 3, Claimed: 1, Failed: 1,
			Delete:     []pool.PreviewDeletion{{Pod: "a", Reason: plan.DeleteSurplus}, {Pod: "b", Reason: plan.DeleteFailed}, {Pod: "c", Reason: plan.DeleteSurplus}},
			NextChange: new(noon),
		},
		{Namespace: "ci", Name: "fakefakef-1a1b2c3d4e", Runner: "ci", Image: "golang:1.26", Policy: "default", Want: 2, Create: 2, New: true},
		{Namespace: "ci", Name: "fakefakef-2a1b2c3d4e", Runner: "ci", Image: "golang:1.26", Policy: "replaced", Idle: 2, ReplacedBy: "fakefakef-1a1b2c3d4e"},
		{Namespace: "ci", Name: "fakefakef-3a1b2c3d4e", Runner: "ci", Image: "node:24", Policy: "removed", Ends: true},
		{
			Namespace: "ci", Name: "fakefakef-4a1b2c3d4e", Runner: "ci", Image: "ruby:4", Policy: "default", Want: 2, Paused: true, TakenFrom: "other/idlecount",
			Shortfall: "Limit: the runner's limit\nis 4",
		},
	}
	for name, wide := range map[string]bool{"plan.txt": false, "plan-wide.txt": true} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			require.NoError(t, writePlan(&b, previews, wide, noon))
			golden(t, name, b.String())
		})
	}
	require.Equal(t, "5 pools: 2 pods to create, 3 to delete", planSummary(previews))
	require.Equal(t, "1 pool: nothing to create or delete", planSummary(previews[2:3]))
}
