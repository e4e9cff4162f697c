package runner

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// recordings holds, for each recorded job, a folder with NN-<stage>.args, .env0 (NUL-separated) and, for run, .script, and
// response.json. The temporary folder stands as /TMPDIR in them.
//
//go:embed testdata
var recordings embed.FS

// Recording is a job that a real GitLab Runner 19.4 worked on: script, variables and payload are its own, but for what
// Changes replaced.
type Recording struct {
	Name string

	response   string
	env        []Variable        // CUSTOM_ENV_ variables of the prepare call
	scripts    map[string]string // by stage
	stages     []string          // all calls in order
	id         string            // as recorded
	changes    Changes
	project    string
	seconds    int
	stepNames  []string
	concurrent int
}

// Changes adapt a recording to where and how often it runs.
type Changes struct {
	ID    int64  // the job's id; 0 keeps the recorded one
	Image string // empty keeps the recorded "alpine:3.20"
	// Replace is pairs of texts, old and new, that are replaced wherever they stand in scripts, variables and payload.
	Replace []string
}

// Recordings are the names that LoadRecording knows:
// "job-101" script, after_script, a service, a file variable, a raw one, a multi-line one;
// "job-102" the script fails with exit code 7;
// "job-106" cache and artifacts;
// "job-107" GIT_STRATEGY=clone.
func Recordings() []string { return []string{"job-101", "job-102", "job-106", "job-107"} }

// What stands in all recordings and is replaced by Changes and by the runner's own token.
const (
	recordedImage  = "alpine:3.20"
	recordedToken  = "fakefakef"
	recordedBuilds = "/builds"
	recordedCache  = "/cache"
)

// LoadRecording reads a recorded job.
func LoadRecording(name string, changes Changes) (Recording, error) {
	r := Recording{Name: name, scripts: map[string]string{}, changes: changes}
	entries, err := fs.ReadDir(recordings, "testdata/"+name)
	if err != nil {
		return Recording{}, fmt.Errorf("recording %s: %w", name, err)
	}
	for _, e := range entries {
		content, err := fs.ReadFile(recordings, "testdata/"+name+"/"+e.Name())
		if err != nil {
			return Recording{}, fmt.Errorf("recording %s: %w", name, err)
		}
		r.add(e.Name(), string(content))
	}
	if err := r.readResponse(); err != nil {
		return Recording{}, fmt.Errorf("recording %s: response.json: %w", name, err)
	}
	return r, nil
}

// add takes one file of a recording.
func (r *Recording) add(file, content string) {
	if file == "response.json" {
		r.response = content
		return
	}
	// 03-run-get_sources.script
	base, kind, _ := strings.Cut(file, ".")
	_, call, _ := strings.Cut(base, "-")
	stage := strings.TrimPrefix(call, "run-")
	switch kind {
	case "args":
		r.stages = append(r.stages, stage)
	case "script":
		r.scripts[stage] = content
	case "env0":
		if stage == "prepare" {
			r.env = recordedVariables(content)
		}
	}
}

// recordedVariables are the job's variables among those of a call.
func recordedVariables(env0 string) []Variable {
	var variables []Variable
	for line := range strings.SplitSeq(env0, "\x00") {
		key, value, _ := strings.Cut(line, "=")
		if name, ok := strings.CutPrefix(key, "CUSTOM_ENV_"); ok {
			variables = append(variables, Variable{Key: name, Value: value})
		}
	}
	return variables
}

func (r *Recording) readResponse() error {
	var response struct {
		ID         int64             `json:"id"`
		RunnerInfo payloadRunnerInfo `json:"runner_info"`
		JobInfo    payloadJobInfo    `json:"job_info"`
		Steps      []payloadStep     `json:"steps"`
	}
	if err := json.Unmarshal([]byte(r.response), &response); err != nil {
		return err
	}
	r.id = strconv.FormatInt(response.ID, 10)
	r.project, r.seconds = response.JobInfo.ProjectFullPath, response.RunnerInfo.Timeout
	for _, step := range response.Steps {
		switch step.Name {
		case "after_script":
		case "script":
			r.stepNames = append(r.stepNames, "build_script")
		default:
			r.stepNames = append(r.stepNames, "step_"+step.Name)
		}
	}
	for _, v := range r.env {
		if v.Key == "CI_CONCURRENT_PROJECT_ID" {
			r.concurrent, _ = strconv.Atoi(v.Value)
		}
	}
	return nil
}

// Stages are the calls of the driver in the order in which they were recorded.
func (r Recording) Stages() []string { return r.stages }

func (r Recording) steps() []string        { return r.stepNames }
func (r Recording) projectPath() string    { return r.project }
func (r Recording) timeout() time.Duration { return time.Duration(r.seconds) * time.Second }
func (r Recording) concurrentProject() int { return r.concurrent }

// jobID is the id that the job has here.
func (r Recording) jobID() string {
	if r.changes.ID == 0 {
		return r.id
	}
	return strconv.FormatInt(r.changes.ID, 10)
}

// replace makes the changes in any recorded text.
func (r Recording) replace(text string, now moment) string {
	pairs := []string{recordedToken, or(now.runner.ShortToken(), recordedToken)}
	if r.changes.Image != "" {
		pairs = append(pairs, recordedImage, r.changes.Image)
	}
	pairs = append(pairs, r.changes.Replace...)
	return strings.NewReplacer(pairs...).Replace(text)
}

func (r Recording) payload(now moment) ([]byte, error) {
	text := r.replace(r.response, now)
	for _, mention := range []string{`{"id":%s,`, `"key":"CI_JOB_ID","value":"%s"`} {
		recorded := fmt.Sprintf(mention, r.id)
		if !strings.Contains(text, recorded) {
			return nil, fmt.Errorf("recording %s: the payload doesn't mention %s", r.Name, recorded)
		}
		text = strings.Replace(text, recorded, fmt.Sprintf(mention, r.jobID()), 1)
	}
	return []byte(text), nil
}

func (r Recording) variables(now moment) []Variable {
	variables := make([]Variable, 0, len(r.env))
	for _, v := range r.env {
		switch v.Key {
		case "CI_BUILDS_DIR":
			v.Value = now.buildsDir
		case "CI_PROJECT_DIR":
			v.Value = now.projectDir
		case "RUNNER_TEMP_PROJECT_DIR":
			v.Value = now.tempDir
		case "CI_JOB_STATUS":
			v.Value = now.status
		case "CI_JOB_ID":
			v.Value = r.jobID()
		default:
			v.Value = r.replace(v.Value, now)
		}
		variables = append(variables, v)
	}
	return variables
}

func (r Recording) script(stage string, now moment) (string, error) {
	script, ok := r.scripts[stage]
	if !ok {
		return "", nil
	}
	if now.buildsDir != recordedBuilds || now.cacheDir != recordedCache+"/"+r.project {
		return "", fmt.Errorf("recording %s was made with builds_dir %s and cache_dir %s, the runner has others", r.Name, recordedBuilds, recordedCache)
	}
	script = r.replace(script, now)
	if stage == "prepare_script" {
		via := ""
		if now.hostname != "" {
			via = " via " + now.hostname
		}
		return regexp.MustCompile(` via [^.]*\.\.\."`).ReplaceAllLiteralString(script, via+`..."`), nil
	}
	// In a script, a line break is a backslash and an n: all lines are one quoted word.
	status := regexp.MustCompile(`export CI_JOB_STATUS=[a-z]+\\n`)
	script = status.ReplaceAllLiteralString(script, "export CI_JOB_STATUS="+now.status+`\n`)
	script = strings.ReplaceAll(script, "export CI_JOB_ID="+r.id+`\n`, "export CI_JOB_ID="+r.jobID()+`\n`)
	return strings.ReplaceAll(script, " --id "+r.id+" ", " --id "+r.jobID()+" "), nil
}
