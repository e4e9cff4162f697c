package cli

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/capacity"
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
	capacities := []capacity.Preview{
		{Namespace: "ci", Name: "stockstoc-pause", Runner: "stock", Strategy: "pause", Policy: "default", Want: 5, Hold: 5, Change: 5, New: true, NextChange: new(noon)},
		{
			Namespace: "ci", Name: "stockstoc-pause-0a1b2c3d4e", Runner: "stock", Image: "golang:1.26", Strategy: "pause", Policy: "default",
			Want: 4, Held: 3, Hold: 2, Change: -1, RollsOut: true, TakenFrom: "other/idlecount", Trouble: "Quota: room\nfor 2",
		},
		{Namespace: "ci", Name: "otherothe-pause", Runner: "other", Strategy: "pause", Policy: "idle_policy[0]", Want: 0, Held: 6, Hold: 6, LooksAgain: new(noon)},
		{Namespace: "ci", Name: "pausedpau-pause", Runner: "paused", Strategy: "pause", Policy: "default", Want: 2, Held: 2, Pending: 1, Hold: 3, Jobs: 4, Paused: true},
		{Namespace: "ci", Name: "draineddr-pause", Runner: "drained", Strategy: "pause", Policy: "default", Drained: true, Change: -2},
		{Namespace: "ci", Name: "bufferbuf-pause", Runner: "buffer", Strategy: "buffer", Policy: "default", Want: 2, Hold: 2, FormerStrategy: "pause"},
		{Namespace: "ci", Name: "leftleftl-pause", Runner: "left", Strategy: "pause", Policy: "removed", Held: 1, Change: -1, Ends: true},
	}
	list := planList{previews, capacities}
	for name, wide := range map[string]bool{"plan.txt": false, "plan-wide.txt": true} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			require.NoError(t, writePlans(&b, list, wide, noon))
			golden(t, name, b.String())
		})
	}
	for want, list := range map[string]planList{
		"5 pools: 2 pods to create, 3 to delete; 7 capacities: room for 5 more jobs, room for 4 fewer, 1 to roll out": list,
		"5 pools: 2 pods to create, 3 to delete":                              {Pools: previews},
		"1 pool: nothing to create or delete":                                 {Pools: previews[2:3]},
		"0 pools: nothing to create or delete":                                {},
		"1 capacity: nothing to change":                                       {Capacity: capacities[3:4]},
		"1 capacity: room for 1 fewer":                                        {Capacity: capacities[6:7]},
		"2 capacities: room for 5 more jobs, room for 1 fewer, 1 to roll out": {Capacity: capacities[:2]},
	} {
		require.Equal(t, want, list.summary())
	}
}
