package pool

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/factory"
)

func runner(name, token string, change func(*config.Kubernetes)) config.Runner {
	r := config.Runner{Name: name, Token: token, Executor: config.ExecutorCustom, HasKubernetes: true, BuildsDir: "/builds", CacheDir: "/cache", Kubernetes: config.Kubernetes{
		Namespace: "ci", Image: "job:1", HelperImage: "helper:1", IdleEntrypointImage: "entrypoint:1", IdleCount: 1,
	}}
	if change != nil {
		change(&r.Kubernetes)
	}
	return r
}

func TestPoolsOf(t *testing.T) {
	images := func(runners ...config.Runner) (found []string, warnings string) {
		var log bytes.Buffer
		pools, err := poolsOf(&config.Config{Runners: runners}, slog.New(slog.NewTextHandler(&log, nil)))
		require.NoError(t, err)
		for k, p := range pools {
			require.Equal(t, k, p.key)
			found = append(found, k.namespace+" "+p.runner.Name+" "+p.image)
		}
		return found, log.String()
	}
	t.Run("one for each image", func(t *testing.T) {
		found, _ := images(runner("a", "glrt-aaaaaaaaa", func(k *config.Kubernetes) { k.IdleImages = []string{"job:1", "job:2"} }), runner("b", "glrt-bbbbbbbbb", nil))
		require.ElementsMatch(t, []string{"ci a job:1", "ci a job:2", "ci b job:1"}, found)
	})
	t.Run("none where no policy ever wants a pod", func(t *testing.T) {
		found, _ := images(runner("a", "glrt-aaaaaaaaa", func(k *config.Kubernetes) { k.IdleCount = 0 }))
		require.Empty(t, found)
	})
	t.Run("one where only a policy wants a pod", func(t *testing.T) {
		found, _ := images(runner("a", "glrt-aaaaaaaaa", func(k *config.Kubernetes) {
			k.IdleCount, k.IdlePolicies = 0, []config.IdlePolicy{{Periods: []string{"* 8 * * *"}, IdleCount: new(3)}}
		}))
		require.Equal(t, []string{"ci a job:1"}, found)
	})
	t.Run("one where only the scale factor may want a pod", func(t *testing.T) {
		found, _ := images(runner("a", "glrt-aaaaaaaaa", func(k *config.Kubernetes) { k.IdleCount, k.ScaleFactor = 0, 0.5 }))
		require.Len(t, found, 1)
	})
	t.Run("none for a runner that isn't ours", func(t *testing.T) {
		r := runner("a", "glrt-aaaaaaaaa", nil)
		r.Executor = "docker"
		found, _ := images(r)
		require.Empty(t, found)
	})
	t.Run("one for two entries with one token, and a warning without it", func(t *testing.T) {
		found, warnings := images(runner("a", "glrt-secretsecret", nil), runner("b", "glrt-secretsecret", nil))
		require.Equal(t, []string{"ci a job:1"}, found)
		require.Contains(t, warnings, "one pool")
		require.NotContains(t, warnings, "secretsecret")
	})
	t.Run("an image that makes no shape is an error", func(t *testing.T) {
		_, err := poolsOf(&config.Config{Runners: []config.Runner{runner("a", "glrt-aaaaaaaaa", func(k *config.Kubernetes) { k.CPURequest = "much" })}}, slog.New(slog.DiscardHandler))
		require.ErrorContains(t, err, "cpu_request")
	})
}

func TestATemplateDiffersByMoreThanItsIdleTime(t *testing.T) {
	pools, err := poolsOf(&config.Config{Runners: []config.Runner{runner("a", "glrt-aaaaaaaaa", nil)}}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	for _, p := range pools {
		require.NotEqual(t, p.template(time.Minute), p.template(time.Hour))
		require.Equal(t, factory.TemplateHash(p.runner, p.shape, time.Hour), p.template(time.Hour))
	}
}

func TestNextChangeIsRememberedAsLongAsItIsRight(t *testing.T) {
	r := runner("a", "glrt-aaaaaaaaa", func(k *config.Kubernetes) {
		k.IdlePolicies = []config.IdlePolicy{{Periods: []string{"* 8-9 * * *"}, Timezone: "UTC", IdleCount: new(3)}}
	})
	pools, err := poolsOf(&config.Config{Runners: []config.Runner{r}}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	for _, p := range pools {
		day := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
		for minute := range 3 * 24 * 60 {
			now := day.Add(time.Duration(minute) * time.Minute)
			right, ok := p.calendar.Schedule.NextChange(now)
			require.True(t, ok)
			require.True(t, right.Equal(p.calendar.NextChange(now)), "at %s", now)
		}
		require.True(t, day.Add(8*time.Hour).Equal(p.calendar.NextChange(day)), "also when the clock is set back")
	}
}
