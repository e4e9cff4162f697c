package job

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"idlecount.dev/idlecount/factory"
)

// Job is what the driver needs to know of a job.
type Job struct {
	Meta     factory.JobMeta
	Shape    factory.Job
	Warnings []string // what the job asks for and doesn't get; for the job's log
}

// Read makes a Job of a stage's environment and the file JOB_RESPONSE_FILE. The file says who the job is: a job can set
// any variable, CI_JOB_ID too, and must not be taken for another one.
func Read(env Env) (Job, error) {
	r, err := readResponse(env["JOB_RESPONSE_FILE"])
	if err != nil {
		return Job{}, err
	}
	return parse(env, r), nil
}

// ID is the job's id, which is all that run and cleanup need of a job.
func ID(env Env) (string, error) {
	r, err := readResponse(env["JOB_RESPONSE_FILE"])
	if err != nil {
		return "", err
	}
	return strconv.FormatInt(r.ID, 10), nil
}

func readResponse(path string) (*response, error) {
	if path == "" {
		return nil, errors.New("JOB_RESPONSE_FILE is not set: idlecount-executor is started by GitLab Runner's custom executor, once a stage")
	}
	data, err := os.ReadFile(path) //nolint:gosec // the path is the runner's
	if err != nil {
		return nil, fmt.Errorf("read JOB_RESPONSE_FILE: %w", err)
	}
	var r response
	if err := json.Unmarshal(data, &r); err != nil {
		// The decoder's words can quote the file, which holds secrets.
		return nil, fmt.Errorf("JOB_RESPONSE_FILE %s is not the JSON of a job", path)
	}
	if r.ID <= 0 {
		return nil, fmt.Errorf("JOB_RESPONSE_FILE %s names no job", path)
	}
	return &r, nil
}

func parse(env Env, r *response) Job {
	meta := r.meta(env)
	meta.Variables = open(env, r.Variables)
	shape := factory.Job{
		Image:      expand(r.Image.Name, env),
		PullPolicy: r.Image.PullPolicy,
		User:       r.Image.ExecutorOpts.Kubernetes.User,
	}
	visible := public(env, r.Variables)
	for _, s := range r.Services {
		shape.Services = append(shape.Services, s.service(env, visible))
	}
	return Job{Meta: meta, Shape: shape, Warnings: overwrites(env)}
}

// maxTimeout bounds a job's timeout, which nothing else does: what Kubernetes takes for a pod's deadline has 31 bits.
const maxTimeout = 10 * 365 * 24 * 60 * 60

// seconds is a timeout; 0 = none.
func seconds(n int64) time.Duration {
	return time.Duration(min(max(n, 0), maxTimeout)) * time.Second
}

// digits is a number that a variable holds, 0 where it holds anything else.
func digits(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

func number(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// expand puts the job's variables into a text: $NAME, ${NAME}, and $$ for a dollar sign. Their values come expanded.
func expand(text string, env Env) string {
	return os.Expand(text, func(name string) string {
		if name == "$" {
			return name
		}
		return env.Job(name)
	})
}

// public are the variables that GitLab's kubernetes executor shows to services, by name, with their values expanded.
func public(env Env, variables []variable) map[string]string {
	seen := make(map[string]string, len(variables))
	for _, v := range variables {
		if value, ok := env[Prefix+v.Key]; ok && v.Public && !v.Masked && !v.File {
			seen[v.Key] = value
		} else {
			delete(seen, v.Key) // a later variable replaces an earlier one of its name
		}
	}
	return seen
}

// open are those public variables that may stand in a pod's metadata: no secret was expanded into them.
func open(env Env, variables []variable) map[string]string {
	var secrets []string
	for _, v := range variables {
		if value := env.Job(v.Key); value != "" && (v.Masked || !v.Public && len(value) >= minSecret) {
			secrets = append(secrets, value)
		}
	}
	seen := public(env, variables)
	maps.DeleteFunc(seen, func(_, value string) bool {
		return slices.ContainsFunc(secrets, func(secret string) bool { return strings.Contains(value, secret) })
	})
	return seen
}

// minSecret is the length from which the value of a variable that is not public counts as a secret: GitLab masks nothing
// shorter, and shorter ones ("1", "true") are part of too many others.
const minSecret = 8

// overwrites names the variables by which a job may change its pod under GitLab's kubernetes executor. Their values may
// be secret (KUBERNETES_BEARER_TOKEN).
func overwrites(env Env) []string {
	var names []string
	for name, value := range env {
		if name, ok := strings.CutPrefix(name, Prefix); ok && value != "" && overwrite(name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return []string{"idlecount doesn't honour " + strings.Join(names, ", ") + ": the pod is as the runner's configuration says"}
}

func overwrite(name string) bool {
	switch name {
	case "KUBERNETES_NAMESPACE_OVERWRITE", "KUBERNETES_SERVICE_ACCOUNT_OVERWRITE", "KUBERNETES_BEARER_TOKEN":
		return true
	}
	for _, prefix := range []string{"KUBERNETES_POD_LABELS_", "KUBERNETES_POD_ANNOTATIONS_", "KUBERNETES_NODE_SELECTOR_", "KUBERNETES_NODE_TOLERATIONS_"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	rest, ok := strings.CutPrefix(name, "KUBERNETES_")
	if !ok {
		return false
	}
	for _, of := range []string{"SERVICE_", "HELPER_", "POD_"} {
		rest = strings.TrimPrefix(rest, of)
	}
	switch rest {
	case "CPU_REQUEST", "CPU_LIMIT", "MEMORY_REQUEST", "MEMORY_LIMIT", "EPHEMERAL_STORAGE_REQUEST", "EPHEMERAL_STORAGE_LIMIT":
		return true
	}
	return false
}
