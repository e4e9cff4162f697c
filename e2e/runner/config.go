package runner

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/BurntSushi/toml"
)

// Runner is a [[runners]] entry of a config.toml and the process that would work for it. The zero values of what the file
// doesn't say are GitLab Runner's defaults.
type Runner struct {
	Name         string          `toml:"name"`
	URL          string          `toml:"url"` // the coordinator: artifacts go there
	Token        string          `toml:"token"`
	Executor     string          `toml:"executor"`
	Shell        string          `toml:"shell"` // "bash" (default) or "sh"
	BuildsDir    string          `toml:"builds_dir"`
	CacheDir     string          `toml:"cache_dir"`
	Environment  []string        `toml:"environment"` // NAME=value, variables of every job
	FeatureFlags map[string]bool `toml:"feature_flags"`
	Custom       Custom          `toml:"custom"`

	// Environ is the environment of GitLab Runner's own process, which drivers inherit; nil is that of this process.
	Environ []string `toml:"-"`
	// TempDir is where the folders of jobs are made; empty is the system's.
	TempDir string `toml:"-"`
	// PrepareInterval is the pause after a preparation that failed; 0 is GitLab Runner's 3 s.
	PrepareInterval time.Duration `toml:"-"`
	// StageInterval is the first pause before a stage is tried again, see GET_SOURCES_ATTEMPTS; 0 is GitLab Runner's 5 s.
	StageInterval time.Duration `toml:"-"`
	// Diagnostics takes what GitLab Runner writes to its own log rather than the job's: the output of cleanup. May be nil.
	Diagnostics io.Writer `toml:"-"`
	// Observe is called whenever the driver was started: the stage, and the process, which leads its group. May be nil.
	Observe func(stage string, pid int) `toml:"-"`
}

// Custom is [runners.custom]; timeouts are in seconds, and one that is not positive is the default.
type Custom struct {
	ConfigExec          string   `toml:"config_exec"`
	ConfigArgs          []string `toml:"config_args"`
	ConfigExecTimeout   int      `toml:"config_exec_timeout"` // default 3600
	PrepareExec         string   `toml:"prepare_exec"`
	PrepareArgs         []string `toml:"prepare_args"`
	PrepareExecTimeout  int      `toml:"prepare_exec_timeout"` // default 3600
	RunExec             string   `toml:"run_exec"`
	RunArgs             []string `toml:"run_args"`
	CleanupExec         string   `toml:"cleanup_exec"`
	CleanupArgs         []string `toml:"cleanup_args"`
	CleanupExecTimeout  int      `toml:"cleanup_exec_timeout"`  // default 3600
	GracefulKillTimeout int      `toml:"graceful_kill_timeout"` // default 600
	ForceKillTimeout    int      `toml:"force_kill_timeout"`    // default 10
}

// Load reads the [[runners]] entry called name from a config.toml, or the only one where name is empty.
func Load(path, name string) (Runner, error) {
	var file struct {
		Runners []Runner `toml:"runners"`
	}
	if _, err := toml.DecodeFile(path, &file); err != nil {
		return Runner{}, fmt.Errorf("read %s: %w", path, err)
	}
	if name == "" && len(file.Runners) > 1 {
		return Runner{}, fmt.Errorf("%s has %d [[runners]] entries: say which by its name", path, len(file.Runners))
	}
	for _, r := range file.Runners {
		if name != "" && r.Name != name {
			continue
		}
		if r.Executor != "custom" {
			return Runner{}, fmt.Errorf("%s: runner %q has the executor %q, only \"custom\" calls a driver", path, r.Name, r.Executor)
		}
		return r, nil
	}
	return Runner{}, fmt.Errorf("%s has no [[runners]] entry %q", path, name)
}

// ShortToken is the runner's name in CI_RUNNER_SHORT_TOKEN: the first nine characters of its token after a known prefix.
func (r Runner) ShortToken() string {
	token := regexp.MustCompile(`^(glrt-)?t[123]_|^glrt-|^glrtr-|^GR[0-9A-Fa-f]{7}`).ReplaceAllString(r.Token, "")
	return token[:min(9, len(token))]
}

func (r Runner) shell() string { return or(r.Shell, "bash") }

// seconds is a timeout of [runners.custom].
func seconds(value, byDefault int) time.Duration {
	if value <= 0 {
		value = byDefault
	}
	return time.Duration(value) * time.Second
}

// environment is [[runners]] environment as variables.
func (r Runner) environment() []Variable {
	var variables []Variable
	for _, line := range r.Environment {
		key, value, _ := strings.Cut(line, "=")
		variables = append(variables, Variable{Key: key, Value: value})
	}
	return variables
}

func or[T comparable](value, byDefault T) T {
	var zero T
	if value == zero {
		return byDefault
	}
	return value
}
