package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/executor-plugin/job"
	"idlecount.dev/idlecount/executor-plugin/kube"
	"idlecount.dev/idlecount/internal/version"
)

// target is where a job runs: a runner's settings, a namespace of a cluster, and the log that tells about it.
type target struct {
	runner config.Runner
	client *kube.Client
	say    func(line string)
}

// runnerOf is the runner that calls, with the settings that the job began with.
func runnerOf(call Call, env job.Env) (config.Runner, error) {
	if call.Stage != stageConfig {
		if r, ok, err := thaw(env, call.Runner); ok || err != nil {
			return r, err
		}
	}
	return findRunner(call, env)
}

// findRunner finds the [[runners]] entry of the runner that calls. The command line says which one it is, since nothing
// else does that a job couldn't change: it may set CI_RUNNER_SHORT_TOKEN to that of a runner which allows more. So that
// variable can only contradict.
func findRunner(call Call, env job.Env) (config.Runner, error) {
	files := strings.Join(call.Files, ", ")
	r, err := config.LoadRunner(call.Files, call.Runner)
	if none, ok := errors.AsType[*config.NoRunnerError](err); ok {
		hint := "give the runner's own config.toml with --config"
		if none.Name == "" && len(none.Have) > 1 {
			hint = "say which one calls, with --runner NAME"
		}
		return config.Runner{}, fmt.Errorf("%s: %w; %s in config_args, prepare_args, run_args and cleanup_args", files, none, hint)
	}
	if err != nil {
		return config.Runner{}, err
	}
	if id := env.Job("CI_RUNNER_SHORT_TOKEN"); id != r.ShortToken() {
		return config.Runner{}, fmt.Errorf("the runner that calls has the short token %q, %s of %s another one; give the runner's own config.toml with --config, and its name with --runner, in all four …_args (the job's variable CI_RUNNER_SHORT_TOKEN must not be set in GitLab)",
			id, r, files)
	}
	if !r.HasKubernetes {
		return config.Runner{}, fmt.Errorf("%s of %s has no [runners.kubernetes] table: it says what the pods of its jobs look like", r, files)
	}
	return r, nil
}

// How long a stage waits for an API server that doesn't answer: an upgrade of a control plane takes a minute. GitLab Runner
// tries prepare three times, and a part of a job once.
const (
	preparePatience = time.Minute
	runPatience     = 2 * time.Minute
	cleanupPatience = time.Minute
)

// doubt is how long a stage that isn't tried again doubts that it is refused.
const doubt = 10 * time.Second

func patience(stage string, say func(string)) kube.Patience {
	switch stage {
	case stagePrepare:
		return kube.Patience{Most: preparePatience, Notice: say}
	case stageRun:
		return kube.Patience{Most: runPatience, Doubt: doubt, Notice: say}
	default:
		return kube.Patience{Most: cleanupPatience, Doubt: doubt, Notice: say}
	}
}

func connect(call Call, runner config.Runner, say func(string)) (*kube.Client, error) {
	cfg, err := kube.Config(call.Access, runner.Kubernetes, "idlecount-executor/"+version.String())
	if err != nil {
		return nil, err
	}
	return kube.New(cfg, runner.Kubernetes.Namespace, patience(call.Stage, say))
}
