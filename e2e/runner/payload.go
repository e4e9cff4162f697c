package runner

import (
	"bytes"
	"encoding/json"
	"strings"
)

// The payload's types have GitLab's names and order of keys; what no driver reads has a fixed value.
type (
	payloadJob struct {
		ID             int64              `json:"id"`
		Token          string             `json:"token"`
		AllowGitFetch  bool               `json:"allow_git_fetch"`
		JobInfo        payloadJobInfo     `json:"job_info"`
		GitInfo        payloadGitInfo     `json:"git_info"`
		RunnerInfo     payloadRunnerInfo  `json:"runner_info"`
		Inputs         struct{}           `json:"inputs"`
		Variables      []payloadVariable  `json:"variables"`
		Steps          []payloadStep      `json:"steps"`
		Image          payloadImage       `json:"image"`
		Services       []payloadImage     `json:"services"`
		Artifacts      []payloadArtifacts `json:"artifacts"`
		Cache          []payloadCache     `json:"cache"`
		Credentials    []struct{}         `json:"credentials"`
		Dependencies   []payloadDependsOn `json:"dependencies"`
		Features       payloadFeatures    `json:"features"`
		PolicyOptions  payloadPolicy      `json:"policy_options"`
		SuspendOptions struct{}           `json:"suspend_options"`
	}
	payloadJobInfo struct {
		Name              string  `json:"name"`
		Stage             string  `json:"stage"`
		PipelineID        int     `json:"pipeline_id"`
		ProjectID         int     `json:"project_id"`
		ProjectName       string  `json:"project_name"`
		ProjectFullPath   string  `json:"project_full_path"`
		NamespaceID       int     `json:"namespace_id"`
		RootNamespaceID   int     `json:"root_namespace_id"`
		OrganizationID    int     `json:"organization_id"`
		InstanceID        string  `json:"instance_id"`
		InstanceUUID      string  `json:"instance_uuid"`
		UserID            int     `json:"user_id"`
		TimeInQueue       float64 `json:"time_in_queue_seconds"`
		RunningOnInstance string  `json:"project_jobs_running_on_instance_runners_count"`
		QueueSize         int     `json:"queue_size"`
		QueueDepth        int     `json:"queue_depth"`
	}
	payloadGitInfo struct {
		RepoURL          string   `json:"repo_url"`
		RepoObjectFormat string   `json:"repo_object_format"`
		Ref              string   `json:"ref"`
		SHA              string   `json:"sha"`
		BeforeSHA        string   `json:"before_sha"`
		RefType          string   `json:"ref_type"`
		Refspecs         []string `json:"refspecs"`
		Depth            int      `json:"depth"`
		Protected        *bool    `json:"protected"`
	}
	payloadRunnerInfo struct {
		UUID    string `json:"uuid"`
		Timeout int    `json:"timeout"`
	}
	payloadVariable struct {
		Key    string `json:"key"`
		Value  string `json:"value"`
		Public bool   `json:"public"`
		File   bool   `json:"file"`
		Masked bool   `json:"masked"`
		Raw    bool   `json:"raw"`
	}
	payloadStep struct {
		Name         string   `json:"name"`
		Script       []string `json:"script"`
		Timeout      int      `json:"timeout"`
		When         string   `json:"when"`
		AllowFailure bool     `json:"allow_failure"`
	}
	payloadImage struct {
		Name            string            `json:"name"`
		Alias           string            `json:"alias,omitempty"`
		Command         []string          `json:"command,omitempty"`
		Entrypoint      []string          `json:"entrypoint,omitempty"`
		Variables       []payloadVariable `json:"variables,omitempty"`
		PullPolicy      []string          `json:"pull_policy,omitempty"`
		ExecutorOptions payloadOptions    `json:"executor_opts"`
	}
	payloadOptions struct {
		Docker struct {
			Platform string `json:"platform"`
			User     string `json:"user"`
		} `json:"docker"`
		Kubernetes struct {
			User string `json:"user"`
		} `json:"kubernetes"`
	}
	payloadArtifacts struct {
		Name      string   `json:"name"`
		Untracked bool     `json:"untracked"`
		Paths     []string `json:"paths"`
		Exclude   []string `json:"exclude"`
		When      string   `json:"when"`
		Type      string   `json:"artifact_type"`
		Format    string   `json:"artifact_format"`
		ExpireIn  string   `json:"expire_in"`
	}
	payloadCache struct {
		Key          string   `json:"key"`
		Untracked    bool     `json:"untracked"`
		Policy       string   `json:"policy"`
		Paths        []string `json:"paths"`
		When         string   `json:"when"`
		FallbackKeys []string `json:"fallback_keys"`
	}
	payloadDependsOn struct {
		ID    int64  `json:"id"`
		Token string `json:"token"`
		Name  string `json:"name"`
	}
	payloadFeatures struct {
		TraceSections     bool      `json:"trace_sections"`
		TokenMaskPrefixes []string  `json:"token_mask_prefixes"`
		FailureReasons    []string  `json:"failure_reasons"`
		Tracing           *struct{} `json:"tracing"`
	}
	payloadPolicy struct {
		ExecutionPolicyJob bool   `json:"execution_policy_job"`
		PolicyName         string `json:"policy_name"`
	}
)

// payload is the job as GitLab Runner writes it to JOB_RESPONSE_FILE.
func (j Job) payload(now moment) ([]byte, error) {
	timeout := int(j.timeout().Seconds())
	group, project, _ := strings.Cut(j.projectPath(), "/")
	if project == "" {
		project = group
	}
	p := payloadJob{
		ID: j.ID, Token: j.token(), AllowGitFetch: true,
		JobInfo: payloadJobInfo{Name: j.name(), Stage: "test", PipelineID: 11, ProjectID: 7, ProjectName: project,
			ProjectFullPath: j.projectPath(), TimeInQueue: 1.5, RunningOnInstance: "0"},
		GitInfo: payloadGitInfo{RepoURL: j.RepoURL, Ref: or(j.Ref, "main"), SHA: j.SHA, BeforeSHA: strings.Repeat("0", 40), RefType: "branch",
			Refspecs: []string{j.refspec()}, Depth: 20},
		RunnerInfo:   payloadRunnerInfo{Timeout: timeout},
		Variables:    payloadVariables(j.given(now.runner.URL)),
		Image:        payloadImage{Name: j.Image, PullPolicy: j.PullPolicy},
		Services:     []payloadImage{},
		Artifacts:    []payloadArtifacts{},
		Cache:        []payloadCache{},
		Credentials:  []struct{}{},
		Dependencies: []payloadDependsOn{},
		Features: payloadFeatures{TraceSections: true, TokenMaskPrefixes: []string{"glpat-"},
			FailureReasons: []string{"script_failure", "runner_system_failure", "job_execution_timeout"}},
	}
	p.Image.ExecutorOptions.Kubernetes.User = j.User
	for _, step := range []payloadStep{
		{Name: "script", Script: j.Script, When: "on_success"},
		{Name: "release", Script: j.Release, When: "on_success"},
		{Name: "after_script", Script: j.AfterScript, When: "always", AllowFailure: true},
	} {
		if step.Timeout = timeout; len(step.Script) > 0 {
			p.Steps = append(p.Steps, step)
		}
	}
	for _, s := range j.Services {
		p.Services = append(p.Services, payloadImage{Name: s.Name, Alias: s.Alias, Command: s.Command, Entrypoint: s.Entrypoint,
			Variables: payloadVariables(s.Variables), PullPolicy: s.PullPolicy})
	}
	for _, a := range j.Artifacts {
		p.Artifacts = append(p.Artifacts, payloadArtifacts{Name: a.Name, Paths: a.Paths, When: or(a.When, "on_success"), Type: "archive", Format: "zip"})
	}
	for _, c := range j.Cache {
		p.Cache = append(p.Cache, payloadCache{Key: c.Key, Policy: or(c.Policy, "pull-push"), Paths: c.Paths, When: or(c.When, "on_success")})
	}
	for _, d := range j.Dependencies {
		p.Dependencies = append(p.Dependencies, payloadDependsOn{ID: d.ID, Token: d.Token, Name: d.Name})
	}
	return encode(p)
}

func payloadVariables(variables []Variable) []payloadVariable {
	var all []payloadVariable
	for _, v := range variables {
		all = append(all, payloadVariable{Key: v.Key, Value: v.Value, Public: v.Public, File: v.File, Masked: v.Masked, Raw: v.Raw})
	}
	return all
}

// serviceJSON is the value of CI_JOB_SERVICES, which has less than the payload: one alias, no pull policy.
func serviceJSON(services []Service) string {
	if len(services) == 0 {
		return ""
	}
	type service struct {
		Name       string            `json:"name"`
		Alias      string            `json:"alias"`
		Entrypoint []string          `json:"entrypoint"`
		Command    []string          `json:"command"`
		Variables  map[string]string `json:"variables,omitempty"`
	}
	var all []service
	for _, s := range services {
		one := service{Name: s.Name, Entrypoint: s.Entrypoint, Command: s.Command}
		if aliases := strings.FieldsFunc(s.Alias, func(r rune) bool { return r == ' ' || r == ',' }); len(aliases) > 0 {
			one.Alias = aliases[0]
		}
		for _, v := range s.Variables {
			if one.Variables == nil {
				one.Variables = map[string]string{}
			}
			one.Variables[v.Key] = v.Value
		}
		all = append(all, one)
	}
	text, err := encode(all)
	if err != nil {
		// Strings and maps of strings can always be encoded.
		panic(err)
	}
	return strings.TrimSpace(string(text))
}

// encode writes JSON as GitLab Runner does: one line.
func encode(value any) ([]byte, error) {
	var buf bytes.Buffer
	if err := json.NewEncoder(&buf).Encode(value); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}
