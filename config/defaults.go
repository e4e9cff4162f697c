package config

import (
	"fmt"
	"os"
	"time"

	"idlecount.dev/idlecount/entrypoint/wire"
	"idlecount.dev/idlecount/internal/version"
)

// What holds where config.toml says nothing. The keys that GitLab has have GitLab's defaults, but for builds_dir and
// cache_dir, for which its custom executor has none.
const (
	DefaultNamespace    = "default"
	DefaultShell        = "bash"
	DefaultBuildsDir    = "/builds"
	DefaultCacheDir     = "/cache"
	DefaultIdleTime     = 30 * time.Minute
	DefaultIdleStrategy = StrategyPods
	DefaultPollTimeout  = 180 // seconds
	// DefaultHelperImage moves with GitLab's releases, so using it is worth a warning.
	DefaultHelperImage = "registry.gitlab.com/gitlab-org/gitlab-runner/gitlab-runner-helper:x86_64-latest"
	// entrypointRepository is where releases put the entrypoint's image.
	entrypointRepository = "ghcr.io/idlecount/entrypoint"
)

// The values of idle_strategy: what is kept for the jobs to come.
const (
	StrategyPods   = "pods"   // idle pods that jobs claim
	StrategyPause  = "pause"  // pause pods that hold the room of a job's pod, which preempts one
	StrategyBuffer = "buffer" // a CapacityBuffer (autoscaling.x-k8s.io), by which the cluster autoscaler keeps such room
)

// DefaultEntrypointImage is the entrypoint's image of this release.
func DefaultEntrypointImage() string { return entrypointRepository + ":" + version.Tag() }

// newRunner has the defaults that a zero in the file would override.
func newRunner(path string) Runner {
	return Runner{Path: path, Kubernetes: Kubernetes{
		IdleTime:        Duration{DefaultIdleTime},
		IdleAbandonTime: Duration{wire.DefaultAbandonTime},
	}}
}

// fillDefaults sets what is empty, or absent, which GitLab takes for the same.
func (e *entry) fillDefaults() {
	r, k := &e.runner, &e.runner.Kubernetes
	for _, d := range []struct {
		key   *string
		value string
	}{
		{&r.Shell, DefaultShell},
		{&r.BuildsDir, DefaultBuildsDir},
		{&r.CacheDir, DefaultCacheDir},
		{&k.Namespace, DefaultNamespace},
		{&k.IdleStrategy, DefaultIdleStrategy},
		{&k.HelperImage, DefaultHelperImage},
		{&k.IdleEntrypointImage, DefaultEntrypointImage()},
	} {
		if *d.key == "" {
			*d.key = d.value
		}
	}
	if k.PollTimeout == 0 {
		k.PollTimeout = DefaultPollTimeout
	}
}

// expand puts variables of the environment into token and url.
func (e *entry) expand(env lookup) {
	for _, key := range []struct {
		name  string
		value *string
	}{{"token", &e.runner.Token}, {"url", &e.runner.URL}} {
		*key.value = os.Expand(*key.value, func(name string) string {
			value, ok := env(name)
			if !ok {
				e.badValues = append(e.badValues, e.at(key.name, "the variable %s that it names is not set in the environment", fmt.Sprintf("%q", name)))
			}
			return value
		})
	}
}
