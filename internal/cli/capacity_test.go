package cli

import (
	"testing"

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
	pools, err := configuredPools(&config.Config{Runners: []config.Runner{r}})
	require.NoError(t, err)
	require.Empty(t, pools)
}
