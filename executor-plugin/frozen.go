package main

import (
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/executor-plugin/job"
)

// runnerVariable hands the runner's settings from the config stage to the later ones. GitLab Runner gives what the config
// stage returns as job_env to their processes, and to nobody else. So a job goes on with the settings that it began with,
// as it does in GitLab Runner itself: an edit of config.toml in its middle, or one that is half done, can't fail it.
const runnerVariable = "IDLECOUNT_RUNNER"

// maxFrozen bounds what freeze returns: Linux takes 128 KiB for a variable with its name, and starts nothing with more.
const maxFrozen = 120 << 10

// freeze writes the settings down, compressed, since a runner may have thousands of images. Of the token they hold what
// names the runner and no more.
func freeze(r config.Runner) (string, error) {
	r.Token = r.TokenName()
	var text strings.Builder
	encoded := base64.NewEncoder(base64.StdEncoding, &text)
	compressed := gzip.NewWriter(encoded)
	if err := errors.Join(json.NewEncoder(compressed).Encode(r), compressed.Close(), encoded.Close()); err != nil {
		return "", fmt.Errorf("write down the settings of runner %s: %w", r, err)
	}
	if text.Len() > maxFrozen {
		return "", fmt.Errorf("the [[runners]] entry of %s is too large to be handed on to the stages of a job (%d KiB compressed, at most %d): give it fewer images, policies or labels",
			r, text.Len()>>10, maxFrozen>>10)
	}
	return text.String(), nil
}

// thaw reads what freeze wrote; false where the config stage left nothing for the runner of that name, "" for any: it
// failed, isn't configured, or somebody has set the variable for all that GitLab Runner starts.
func thaw(env job.Env, name string) (config.Runner, bool, error) {
	text := env[runnerVariable]
	if text == "" {
		return config.Runner{}, false, nil
	}
	var r config.Runner
	compressed, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(text)))
	if err == nil {
		err = json.NewDecoder(compressed).Decode(&r)
	}
	if err != nil {
		return config.Runner{}, false, fmt.Errorf("read the settings in %s, which the config stage left: %w", runnerVariable, err)
	}
	if name != "" && r.Name != name || r.ShortToken() != env.Job("CI_RUNNER_SHORT_TOKEN") {
		return config.Runner{}, false, nil
	}
	return r, true, nil
}
