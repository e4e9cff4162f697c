package job

import (
	"encoding/json"
	"errors"
	"maps"

	"idlecount.dev/idlecount/factory"
)

// response is the part of JOB_RESPONSE_FILE that matters here (GitLab Runner: common/spec, the payload of jobs/request).
type response struct {
	ID      int64 `json:"id"`
	JobInfo struct {
		RootNamespaceID int64 `json:"root_namespace_id"`
	} `json:"job_info"`
	RunnerInfo struct {
		Timeout int64 `json:"timeout"` // seconds
	} `json:"runner_info"`
	Variables []variable `json:"variables"`
	Image     image      `json:"image"`
	Services  []image    `json:"services"`
}

type variable struct {
	Key    string `json:"key"`
	Value  string `json:"value"` // not expanded
	Public bool   `json:"public"`
	File   bool   `json:"file"`
	Masked bool   `json:"masked"`
	Raw    bool   `json:"raw"`
}

// image is a job's image or one of its services.
type image struct {
	Name         string     `json:"name"`
	Alias        string     `json:"alias"` // several, split by commas or blanks
	Entrypoint   []string   `json:"entrypoint"`
	Command      []string   `json:"command"`
	PullPolicy   []string   `json:"pull_policy"`
	Variables    []variable `json:"variables"`
	ExecutorOpts struct {
		Kubernetes struct {
			User string `json:"user"`
		} `json:"kubernetes"`
	} `json:"executor_opts"`
}

// service gives a service the job's public variables with its own over them, as GitLab's kubernetes executor does.
func (i image) service(env Env, public map[string]string) factory.Service {
	variables := maps.Clone(public)
	for _, v := range i.Variables {
		variables[v.Key] = v.Value
		if !v.Raw {
			variables[v.Key] = expand(v.Value, env)
		}
	}
	var aliases []string
	if i.Alias != "" {
		aliases = []string{expand(i.Alias, env)}
	}
	return factory.Service{
		Name:       expand(i.Name, env),
		Aliases:    aliases,
		Entrypoint: i.Entrypoint,
		Command:    i.Command,
		PullPolicy: i.PullPolicy,
		User:       i.ExecutorOpts.Kubernetes.User,
		Variables:  variables,
	}
}

// servicesOf reads CI_JOB_SERVICES, which has the first alias only, no pull policies and no users.
func servicesOf(text string) ([]factory.Service, error) {
	if text == "" {
		return nil, nil
	}
	var listed []struct {
		Name       string            `json:"name"`
		Alias      string            `json:"alias"`
		Entrypoint []string          `json:"entrypoint"`
		Command    []string          `json:"command"`
		Variables  map[string]string `json:"variables"`
	}
	if err := json.Unmarshal([]byte(text), &listed); err != nil {
		return nil, errors.New("CUSTOM_ENV_CI_JOB_SERVICES is not the JSON of a job's services")
	}
	var services []factory.Service
	for _, s := range listed {
		service := factory.Service{Name: s.Name, Entrypoint: s.Entrypoint, Command: s.Command, Variables: s.Variables}
		if s.Alias != "" {
			service.Aliases = []string{s.Alias}
		}
		services = append(services, service)
	}
	return services, nil
}
