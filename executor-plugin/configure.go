package main

import (
	"encoding/json"
	"io"

	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/internal/version"
)

// settings is what GitLab Runner reads from the config stage's stdout.
type settings struct {
	BuildsDir         string       `json:"builds_dir"`
	CacheDir          string       `json:"cache_dir"`
	BuildsDirIsShared bool         `json:"builds_dir_is_shared"` // a pod has one job
	Driver            driverOfJSON `json:"driver"`
	Shell             string       `json:"shell"`
	// JobEnv is the environment that the later stages get on top.
	JobEnv map[string]string `json:"job_env"`
}

type driverOfJSON struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// configure is the config stage. It asks the cluster nothing.
func configure(runner config.Runner, out io.Writer) error {
	frozen, err := freeze(runner)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(settings{
		BuildsDir: runner.BuildsDir,
		CacheDir:  runner.CacheDir,
		Driver:    driverOfJSON{Name: "idlecount", Version: version.String()},
		Shell:     runner.Shell,
		JobEnv:    map[string]string{runnerVariable: frozen},
	})
}
