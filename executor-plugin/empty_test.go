package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/pool/claim"
)

func TestWhatAPoolHasInsteadOfIdlePods(t *testing.T) {
	for want, count := range map[string]claim.Count{
		"pool p has no pods; `idlecount status` says why":                                                               {},
		"all 3 pods of pool p are claimed by other jobs":                                                                {Claimed: 3},
		"pool p has no pod that can be claimed (1 ending); `idlecount status` says more":                                {Ending: 1},
		"pool p has no pod that can be claimed (2 claimed, 1 starting, 1 ended or stuck); `idlecount status` says more": {Claimed: 2, Warming: 1, Ended: 1},
	} {
		require.Equal(t, want, noneIdle("p", count))
	}
}
