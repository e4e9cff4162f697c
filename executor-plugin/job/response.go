package job

import (
	"maps"
	"net/url"
	"strconv"
	"strings"

	"idlecount.dev/idlecount/factory"
)

// response is the part of JOB_RESPONSE_FILE that matters here (GitLab Runner: common/spec, the payload of jobs/request).
type response struct {
	ID      int64 `json:"id"`
	JobInfo struct {
		Name            string `json:"name"`
		ProjectID       int64  `json:"project_id"`
		ProjectName     string `json:"project_name"`
		ProjectFullPath string `json:"project_full_path"`
		NamespaceID     int64  `json:"namespace_id"`
		RootNamespaceID int64  `json:"root_namespace_id"`
	} `json:"job_info"`
	GitInfo struct {
		RepoURL   string `json:"repo_url"` // with the job's token in it
		Ref       string `json:"ref"`
		SHA       string `json:"sha"`
		BeforeSHA string `json:"before_sha"`
	} `json:"git_info"`
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

// meta takes what a pod's metadata says of the job from what GitLab said. The variables of the same names would say it
// too, and more, but a job can set each of them: to another project's, or to a secret of its own.
func (r *response) meta(env Env) factory.JobMeta {
	id := strconv.FormatInt(r.ID, 10)
	namespace := folderOf(r.JobInfo.ProjectFullPath)
	root, _, _ := strings.Cut(namespace, "/")
	return factory.JobMeta{
		ID:              id,
		Name:            r.JobInfo.Name,
		URL:             jobURL(r.GitInfo.RepoURL, id),
		SHA:             r.GitInfo.SHA,
		BeforeSHA:       r.GitInfo.BeforeSHA,
		Ref:             r.GitInfo.Ref,
		ConcurrentID:    strconv.FormatInt(digits(env.Job("CI_CONCURRENT_PROJECT_ID")), 10),
		ProjectID:       number(r.JobInfo.ProjectID),
		ProjectName:     r.JobInfo.ProjectName,
		Namespace:       namespace,
		NamespaceID:     number(r.JobInfo.NamespaceID),
		RootNamespace:   root,
		RootNamespaceID: number(r.JobInfo.RootNamespaceID),
		Timeout:         seconds(r.RunnerInfo.Timeout),
	}
}

// jobURL is the job's page in GitLab, made of the URL of its repository as GitLab Runner does; "" where that is none.
func jobURL(repository, id string) string {
	u, err := url.Parse(repository)
	if err != nil || u.Host == "" {
		return ""
	}
	page := url.URL{Scheme: u.Scheme, Host: u.Host, Path: strings.TrimSuffix(u.Path, ".git") + "/-/jobs/" + id}
	return page.String()
}

// folderOf is a path without its last part.
func folderOf(path string) string { return path[:max(0, strings.LastIndexByte(path, '/'))] }

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
