package main

import (
	"encoding/json"
	"fmt"

	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/executor-plugin/job"
)

// runnerVariable hands the runner's settings from the config stage to the later ones. GitLab Runner gives what the config
// stage returns as job_env to their processes, and to nobody else. So a job goes on with the settings that it began with,
// as it does in GitLab Runner itself: an edit of config.toml in its middle, or one that is half done, can't fail it.
const runnerVariable = "IDLECOUNT_RUNNER"

// freeze writes the settings down. Of the token they hold what names the runner and no more.
func freeze(r config.Runner) (string, error) {
	r.Token = r.TokenName()
	data, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("write down the settings of runner %s: %w", r, err)
	}
	return string(data), nil
}

// thaw reads what freeze wrote; false where the config stage left nothing: it failed, or isn't configured.
func thaw(env job.Env) (config.Runner, bool, error) {
	text := env[runnerVariable]
	if text == "" {
		return config.Runner{}, false, nil
	}
	var r config.Runner
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return config.Runner{}, false, fmt.Errorf("read the settings in %s, which the config stage left: %w", runnerVariable, err)
	}
	if id := env.Job("CI_RUNNER_SHORT_TOKEN"); r.ShortToken() != id {
		return config.Runner{}, false, nil // of another runner: somebody else's variable
	}
	return r, true, nil
}
