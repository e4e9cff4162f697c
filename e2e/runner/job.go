package runner

import (
	"cmp"
	"fmt"
	"net/url"
	"os"
	"path"
	"strconv"
	"time"
)

// Job is a job for which scripts are generated. Only ID and Script are needed; ids must differ between jobs that run at
// the same time, as GitLab's do.
type Job struct {
	ID          int64
	Name        string // default "job"
	Token       string // the job's credential; default "jobtok-" and the id
	ProjectPath string // default "grp/prj"
	Image       string // empty: the runner's own
	PullPolicy  []string
	User        string // image: kubernetes: user
	Services    []Service
	Variables   []Variable

	Script      []string
	AfterScript []string
	Release     []string // a second step, called step_release, after Script

	GitStrategy  string        // "none" (default), "clone" or "fetch"
	RepoURL      string        // may carry credentials
	Ref, SHA     string        // with clone and fetch
	Cache        []Cache       // below the runner's cache_dir
	Artifacts    []Artifacts   // posted to the runner's URL
	Dependencies []Dependency  // jobs whose artifacts are fetched before the script
	Timeout      time.Duration // default 1 h
	Concurrent   int           // CI_CONCURRENT_ID and CI_CONCURRENT_PROJECT_ID
}

// Variable is a job variable. The text of a File variable stands in a file in scripts, and in the variable itself for drivers.
type Variable struct {
	Key, Value string
	File       bool
	Raw        bool // its value is taken as it is; others have references to variables ($NAME, ${NAME}) resolved
	Masked     bool
	Public     bool
}

// Service is a service of a job.
type Service struct {
	Name       string // image
	Alias      string // one or more, separated by spaces or commas
	Entrypoint []string
	Command    []string
	PullPolicy []string
	Variables  []Variable
}

// Cache is a cache of a job.
type Cache struct {
	Key    string
	Paths  []string
	Policy string // "pull-push" (default), "pull" or "push"
	When   string // "on_success" (default), "on_failure" or "always"
}

// Artifacts are files that a job leaves.
type Artifacts struct {
	Name  string
	Paths []string
	When  string // "on_success" (default), "on_failure" or "always"
}

// Dependency is a job whose artifacts another needs.
type Dependency struct {
	ID          int64
	Name, Token string
}

// The version that drivers are told, the one whose behaviour this package has.
const (
	runnerVersion  = "19.4.0"
	runnerRevision = "d79f3e7b8"
)

func (j Job) projectPath() string    { return cmp.Or(j.ProjectPath, "grp/prj") }
func (j Job) timeout() time.Duration { return cmp.Or(j.Timeout, time.Hour) }
func (j Job) concurrentProject() int { return j.Concurrent }
func (j Job) name() string           { return cmp.Or(j.Name, "job") }
func (j Job) strategy() string       { return cmp.Or(j.GitStrategy, "none") }
func (j Job) token() string          { return cmp.Or(j.Token, "jobtok-"+strconv.FormatInt(j.ID, 10)) }

func (j Job) steps() []string {
	steps := []string{"build_script"}
	if len(j.Release) > 0 {
		steps = append(steps, "step_release")
	}
	return steps
}

// given are the variables as GitLab sends them.
func (j Job) given(serverURL string) []Variable {
	public := func(key, value string) Variable { return Variable{Key: key, Value: value, Public: true} }
	variables := []Variable{
		public("CI", "true"),
		public("GITLAB_CI", "true"),
		public("CI_JOB_ID", strconv.FormatInt(j.ID, 10)),
		public("CI_JOB_NAME", j.name()),
		{Key: "CI_JOB_TOKEN", Value: j.token(), Masked: true},
	}
	if j.Image != "" {
		variables = append(variables, public("CI_JOB_IMAGE", j.Image))
	}
	variables = append(variables,
		public("CI_PROJECT_ID", "7"),
		public("CI_PROJECT_PATH", j.projectPath()),
		public("CI_SERVER_URL", serverURL),
		public("CI_PIPELINE_ID", "11"),
		public("GIT_STRATEGY", j.strategy()),
	)
	return append(variables, j.Variables...)
}

// variables are what a job can read, as GitLab Runner completes and resolves them.
func (j Job) variables(now moment) []Variable {
	variables := featureFlags(now.runner.FeatureFlags)
	add := func(key, value string) { variables = append(variables, Variable{Key: key, Value: value, Public: true}) }
	if j.Image != "" {
		add("CI_JOB_IMAGE", j.Image)
	}
	add("CI_RUNNER_SHORT_TOKEN", now.runner.ShortToken())
	variables = append(variables, now.runner.environment()...)
	add("CI_BUILDS_DIR", now.buildsDir)
	add("CI_PROJECT_DIR", now.projectDir)
	add("CI_CONCURRENT_ID", strconv.Itoa(j.Concurrent))
	add("CI_CONCURRENT_PROJECT_ID", strconv.Itoa(j.Concurrent))
	add("CI_SERVER", "yes")
	add("CI_JOB_STATUS", now.status)
	add("CI_JOB_TIMEOUT", strconv.Itoa(int(j.timeout().Seconds())))
	variables = append(variables, j.given(now.runner.URL)...)
	add("CI_SHARED_ENVIRONMENT", "true")
	add("CI_RUNNER_VERSION", runnerVersion)
	add("CI_RUNNER_REVISION", runnerRevision)
	add("CI_RUNNER_EXECUTABLE_ARCH", "linux/amd64")
	add("RUNNER_TEMP_PROJECT_DIR", now.tempDir)
	variables = append(variables, Variable{Key: "CI_JOB_SERVICES", Value: serviceJSON(j.Services), Public: true})
	return resolve(variables)
}

// resolve replaces references to other variables, one level deep.
func resolve(variables []Variable) []Variable {
	values := map[string]string{}
	for _, v := range variables {
		values[v.Key] = v.Value
	}
	resolved := make([]Variable, 0, len(variables))
	for _, v := range variables {
		if !v.Raw {
			v.Value = os.Expand(v.Value, func(name string) string { return values[name] })
		}
		resolved = append(resolved, v)
	}
	return resolved
}

// featureFlags are GitLab Runner's flags with their defaults, or what [runners.feature_flags] says.
func featureFlags(set map[string]bool) []Variable {
	var variables []Variable
	for _, flag := range knownFlags() {
		value, ok := set[flag.name]
		if !ok {
			value = flag.byDefault
		}
		variables = append(variables, Variable{Key: flag.name, Value: strconv.FormatBool(value), Public: true})
	}
	return variables
}

// repository is the address to fetch from, without credentials, and the one with them.
func (j Job) repository() (plain, full string, err error) {
	u, err := url.Parse(j.RepoURL)
	if err != nil || j.RepoURL == "" {
		return "", "", fmt.Errorf("job %d: RepoURL %q is no address to fetch from", j.ID, j.RepoURL)
	}
	full = u.String()
	u.User = nil
	return u.String(), full, nil
}

// cacheFile is where a cache's file is, as a script in the project's folder calls it.
func cacheFile(now moment, key string) string { return path.Join(now.cacheDir, key, "cache.zip") }
