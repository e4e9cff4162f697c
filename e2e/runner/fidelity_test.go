package runner

import (
	"encoding/json"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// podA is what the driver of the recorded jobs answered to config.
const podA = `{"hostname":"pod-a","builds_dir":"/builds","cache_dir":"/cache","job_env":{"POD_HINT":"pod-a"},"driver":{"name":"fake","version":"v1"}}`

// How the recorded jobs went: which stage failed, with what.
func recordedPlan(name string) plan {
	p := plan{"config": {{Stdout: podA}}}
	switch name {
	case "job-102":
		p["build_script"] = []step{{Exit: 1, ExitCode: "7\n"}}
	case "job-106":
		p["upload_artifacts_on_success"] = []step{{Exit: 1, ExitCode: "1\n"}}
	}
	return p
}

func TestRecordedJobsAreReplayedAsTheyWere(t *testing.T) {
	for _, name := range Recordings() {
		t.Run(name, func(t *testing.T) {
			recording, err := LoadRecording(name, Changes{})
			require.NoError(t, err)
			r := newRecorder(t, recordedPlan(name))
			result := r.Run(t.Context(), recording, nil)
			records := r.records(t)
			require.Equal(t, recording.Stages(), stages(records))
			require.Equal(t, recording.Stages(), result.Stages())

			response, err := fs.ReadFile(recordings, "testdata/"+name+"/response.json")
			require.NoError(t, err)
			for _, got := range records {
				t.Run(got.Stage, func(t *testing.T) {
					file := recordedFile(t, name, got.Stage)
					requireRecordedArgs(t, file("args"), got)
					requireRecordedEnv(t, file("env0"), got, r.Environ)
					if got.Script != "" {
						require.Equal(t, file("script"), got.Script)
						require.Equal(t, "-rwx------", got.Modes["script"].String())
					}
					require.Equal(t, string(response), got.Response)
					require.Equal(t, "-rw-------", got.Modes["response"].String())
					require.Equal(t, got.PID, got.PGID, "the driver leads a process group")
				})
			}
		})
	}
}

func TestRecordedJobsEndAsTheyDid(t *testing.T) {
	for name, want := range map[string]Result{
		"job-101": {Status: Success},
		"job-102": {Status: Failed, FailureReason: ScriptFailure, ExitCode: 7},
		"job-106": {Status: Failed, FailureReason: ScriptFailure, ExitCode: 1},
		"job-107": {Status: Success},
	} {
		t.Run(name, func(t *testing.T) {
			recording, err := LoadRecording(name, Changes{})
			require.NoError(t, err)
			got := newRecorder(t, recordedPlan(name)).Run(t.Context(), recording, nil)
			require.Equal(t, want.Status, got.Status)
			require.Equal(t, want.FailureReason, got.FailureReason)
			require.Equal(t, want.ExitCode, got.ExitCode)
		})
	}
}

func TestChangesReachEverything(t *testing.T) {
	recording, err := LoadRecording("job-106", Changes{ID: 4711, Image: "127.0.0.1:5000/job-bash:1",
		Replace: []string{"http://127.0.0.1:8929", "http://10.99.0.1:80"}})
	require.NoError(t, err)
	r := newRecorder(t, recordedPlan("job-106"))
	r.Token = "glrt-otherotherother"
	r.Run(t.Context(), recording, nil)
	for _, got := range r.records(t) {
		env := strings.Join(got.Env, "\n")
		require.Contains(t, env, "CUSTOM_ENV_CI_JOB_ID=4711\n")
		require.Contains(t, env, "CUSTOM_ENV_CI_JOB_IMAGE=127.0.0.1:5000/job-bash:1\n")
		require.Contains(t, env, "CUSTOM_ENV_CI_RUNNER_SHORT_TOKEN=otherothe\n")
		for _, text := range []string{env, got.Script, got.Response} {
			require.NotContains(t, text, "alpine")
			require.NotContains(t, text, "fakefake")
			require.NotContains(t, text, "CI_JOB_ID=106")
			require.NotContains(t, text, "8929")
		}
		var response struct {
			ID int64 `json:"id"`
		}
		require.NoError(t, json.Unmarshal([]byte(got.Response), &response))
		require.EqualValues(t, 4711, response.ID)
		if got.Stage == "upload_artifacts_on_success" {
			require.Contains(t, got.Script, "--id 4711 ")
		}
	}
}

// The generated job that GitLab's recorded one is made of.
func likeJob101() Job {
	return Job{
		ID: 101, Name: "job101", Image: "alpine:3.20", Timeout: 120e9, Token: "jobtok",
		Services: []Service{{Name: "redis:7", Alias: "cache db", Variables: []Variable{{Key: "A", Value: "1"}}}},
		Variables: []Variable{
			{Key: "GREETING", Value: "hi $CI_JOB_NAME", Public: true},
			{Key: "MULTI", Value: "a\nb"},
			{Key: "MY_FILE", Value: "file-content", File: true},
			{Key: "RAWV", Value: "$NOEXPAND", Raw: true, Public: true},
		},
		Script:      []string{`echo "greeting=$GREETING raw=$RAWV"`, `echo "file var is $MY_FILE"; cat $MY_FILE; echo`, `pwd; env | grep -c CUSTOM_ENV || true`},
		AfterScript: []string{"echo after $CI_JOB_STATUS"},
	}
}

func TestGeneratedJobsLookLikeRecordedOnes(t *testing.T) {
	recording, err := LoadRecording("job-101", Changes{})
	require.NoError(t, err)
	r := newRecorder(t, recordedPlan("job-101"))
	result := r.Run(t.Context(), likeJob101(), nil)
	require.Equal(t, Success, result.Status, "%s", result.Log)
	records := r.records(t)
	require.Equal(t, recording.Stages(), stages(records))
	// The recording is of a build of GitLab Runner that carries its commit in its version.
	released := strings.NewReplacer("19.4.0-d79f3e7b-teststub", "19.4.0")
	for _, got := range records {
		t.Run(got.Stage, func(t *testing.T) {
			file := recordedFile(t, "job-101", got.Stage)
			requireRecordedArgs(t, file("args"), got)
			requireRecordedEnv(t, released.Replace(file("env0")), got, r.Environ)
			if want := file("script"); want != "" {
				head, _, _ := strings.Cut(want, "eval ")
				require.Equal(t, head, got.Script[:len(head)])
				require.True(t, strings.HasSuffix(got.Script, "') < /dev/null\nexit 0\n"))
			}
		})
	}
	// The scripts of the job itself are the same to the byte.
	for _, got := range records {
		if got.Stage == "build_script" || got.Stage == "after_script" {
			want := released.Replace(recordedFile(t, "job-101", got.Stage)("script"))
			require.Equal(t, strings.Split(want, `\n`), strings.Split(got.Script, `\n`), got.Stage)
		}
	}

	var want, got map[string]any
	require.NoError(t, json.Unmarshal([]byte(recording.response), &want))
	require.NoError(t, json.Unmarshal([]byte(records[0].Response), &got))
	require.Equal(t, keys("", want), keys("", got), "the payload has GitLab's keys")
}

// keys are the paths of all keys in decoded JSON; lists count by their first element.
func keys(prefix string, value any) []string {
	var all []string
	switch v := value.(type) {
	case map[string]any:
		for key, below := range v {
			all = append(all, prefix+"."+key)
			all = append(all, keys(prefix+"."+key, below)...)
		}
	case []any:
		if len(v) > 0 {
			all = keys(prefix+"[]", v[0])
		}
	}
	slices.Sort(all)
	return all
}

// recordedFile reads the files of one recorded call by their kind; a kind that the call doesn't have is empty.
func recordedFile(t *testing.T, name, stage string) func(kind string) string {
	t.Helper()
	return func(kind string) string {
		files, err := fs.Glob(recordings, "testdata/"+name+"/??-*"+stage+"."+kind)
		require.NoError(t, err)
		for _, file := range files {
			base := strings.TrimSuffix(file[strings.LastIndex(file, "/")+4:], "."+kind)
			if strings.TrimPrefix(base, "run-") == stage {
				content, err := fs.ReadFile(recordings, file)
				require.NoError(t, err)
				return string(content)
			}
		}
		return ""
	}
}

func requireRecordedArgs(t *testing.T, want string, got record) {
	t.Helper()
	random := regexp.MustCompile(`/script[0-9]+/script`)
	text := strings.ReplaceAll(strings.Join(got.Args, "\n")+"\n", got.Dir+"/", "/TMPDIR/")
	require.Equal(t, random.ReplaceAllString(want, "/scriptN/script"), random.ReplaceAllString(text, "/scriptN/script"))
}

// requireRecordedEnv compares names and values; the manager's own variables weren't recorded.
func requireRecordedEnv(t *testing.T, want string, got record, manager []string) {
	t.Helper()
	var env []string
	for _, line := range got.Env {
		if !slices.Contains(manager, line) {
			env = append(env, strings.ReplaceAll(line, got.Dir, "/TMPDIR"))
		}
	}
	slices.Sort(env)
	recorded := strings.Split(strings.Trim(want, "\x00"), "\x00")
	slices.Sort(recorded)
	require.Equal(t, recorded, env)
}
