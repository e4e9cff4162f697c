package cli

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/config"
)

func TestWhatIsKeptForARunner(t *testing.T) {
	r := config.Runner{Path: "runners[0]", Name: "ci", Token: "glrt-fakefakefake", Executor: "kubernetes", HasKubernetes: true, HasIdle: true}
	r.Kubernetes = config.Kubernetes{
		Namespace: "ci", Image: "alpine:3.22", IdleStrategy: config.StrategyPods, IdleCount: 2, IdlePauseCount: 5, IdleEntrypointImage: "entrypoint:1",
	}
	both, err := keptFor(r)
	require.NoError(t, err)
	require.Len(t, both, 2)
	require.Equal(t, "alpine:3.22", both[0].image)
	require.Equal(t, 2, both[0].schedule.Default.IdleCount)
	require.Equal(t, []string{config.StrategyPods, config.StrategyPause}, []string{both[0].strategy, both[1].strategy})
	require.Empty(t, both[1].image)
	require.Equal(t, 5, both[1].schedule.Default.IdleCount)

	r.Kubernetes.IdleStrategy, r.Kubernetes.IdlePauseCount = config.StrategyPause, 0
	r.Kubernetes.IdleOverrides = []config.IdleImage{{Image: "big:1", CPURequest: new("8")}}
	room, err := keptFor(r)
	require.NoError(t, err)
	require.Len(t, room, 2)
	require.Equal(t, "big:1", room[1].image)
	list, err := configuredBy(&config.Config{Runners: []config.Runner{r}}, time.Time{})
	require.NoError(t, err)
	require.Empty(t, list.Pools)
	require.Len(t, list.Capacity, 2)
}

// TestWhatIsSaidOfAValidFile counts room for jobs as it counts pools, by the policy in force.
func TestWhatIsSaidOfAValidFile(t *testing.T) {
	cfg, err := config.Load([]string{"testdata/config/room.toml"})
	require.NoError(t, err)
	for at, now := range map[string]int{"2026-03-02T12:00:00+01:00": 10 + 10 + 1 + 2 + 1, "2026-03-01T12:00:00+01:00": 2 + 2 + 1 + 2 + 1} {
		clock, err := time.Parse(time.RFC3339, at)
		require.NoError(t, err)
		list, err := configuredBy(cfg, clock)
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("1 pool, 5 capacities with room for %d now", now), list.String())
		require.Equal(t, configuredCapacity{
			Name: "zyxwvutsr-pause", Namespace: "nightly", Runner: "beside", Strategy: config.StrategyPause,
			IdleCount: 2, IdleTime: "30m0s", Policies: 1, Now: 2,
		}, list.Capacity[3])
		list.Pools, list.Capacity = nil, list.Capacity[:1]
		require.Equal(t, fmt.Sprintf("1 capacity with room for %d now", list.Capacity[0].Now), list.String())
	}
	require.Equal(t, "0 pools", configuredList{}.String())
}
