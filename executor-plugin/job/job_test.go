package job

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/factory"
)

// recorded is the environment of a recorded prepare stage, with its response file in place.
func recorded(t *testing.T, name string) Env {
	t.Helper()
	folder := filepath.Join("testdata", name)
	data, err := os.ReadFile(filepath.Join(folder, "prepare.env0"))
	require.NoError(t, err)
	env := Environ(strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00"))
	require.Equal(t, "/TMPDIR/response.json", env["JOB_RESPONSE_FILE"])
	env["JOB_RESPONSE_FILE"] = filepath.Join(folder, "response.json")
	return env
}

func TestReadOfRecordedJobs(t *testing.T) {
	for name, id := range map[string]string{"job-101": "101", "job-102": "102", "job-106": "106", "job-107": "107"} {
		t.Run(name, func(t *testing.T) {
			j, err := Read(recorded(t, name))
			require.NoError(t, err)
			require.Equal(t, id, j.Meta.ID)
			require.Equal(t, 2*time.Minute, j.Meta.Timeout)
			require.Equal(t, "7", j.Meta.ProjectID)
			require.Equal(t, "alpine:3.20", j.Shape.Image)
			require.Empty(t, j.Shape.User)
			require.Empty(t, j.Warnings)
			if name == "job-101" {
				return
			}
			require.Empty(t, j.Shape.Services, "%s has no services: a pool's pod fits it", name)
		})
	}
}

func TestReadOfAServiceFromTheResponse(t *testing.T) {
	j, err := Read(recorded(t, "job-101"))
	require.NoError(t, err)
	require.Len(t, j.Shape.Services, 1)
	service := j.Shape.Services[0]
	require.Equal(t, "redis:7", service.Name)
	require.Equal(t, []string{"cache db"}, service.Aliases, "all aliases, as they stand")
	require.Equal(t, "1", service.Variables["A"], "its own variables")
	require.Equal(t, "hi job101", service.Variables["GREETING"], "the job's public ones, expanded")
	for _, hidden := range []string{"CI_JOB_TOKEN", "MULTI", "MY_FILE"} {
		require.NotContains(t, service.Variables, hidden, "what isn't public stays with the job")
	}
}

// A job can set every variable of the runner's; what it is goes by what GitLab said of it alone.
func TestAJobCannotPassForAnother(t *testing.T) {
	env := recorded(t, "job-101")
	honest, err := Read(env)
	require.NoError(t, err)
	for _, name := range []string{
		"CI_JOB_ID", "CI_JOB_NAME", "CI_JOB_URL", "CI_JOB_IMAGE", "CI_JOB_TIMEOUT", "CI_JOB_SERVICES", "CI_COMMIT_SHA", "CI_COMMIT_BEFORE_SHA",
		"CI_COMMIT_REF_NAME", "CI_PROJECT_ID", "CI_PROJECT_NAME", "CI_PROJECT_NAMESPACE", "CI_PROJECT_NAMESPACE_ID",
		"CI_PROJECT_ROOT_NAMESPACE", "CI_PROJECT_ROOT_NAMESPACE_ID", "CI_CONCURRENT_PROJECT_ID",
	} {
		env[Prefix+name] = "forged s3cr3t"
	}
	forged, err := Read(env)
	require.NoError(t, err)
	forged.Meta.Variables = honest.Meta.Variables // they are the job's own
	forged.Shape.Services[0].Variables = honest.Shape.Services[0].Variables
	require.Equal(t, honest, forged)
	id, err := ID(env)
	require.NoError(t, err)
	require.Equal(t, "101", id)
}

func TestMetadataOfAJob(t *testing.T) {
	j, err := Read(recorded(t, "job-101"))
	require.NoError(t, err)
	j.Meta.Variables = nil
	require.Equal(t, factory.JobMeta{
		ID: "101", Name: "job101", URL: "http://gitlab.example.com/grp/prj/-/jobs/101", Ref: "main",
		SHA: "0123456789012345678901234567890123456789", BeforeSHA: "0000000000000000000000000000000000000000",
		ConcurrentID: "0", ProjectID: "7", ProjectName: "prj", Namespace: "grp", RootNamespace: "grp", Timeout: 2 * time.Minute,
	}, j.Meta)
}

func TestATimeoutBeyondAllSense(t *testing.T) {
	for _, n := range []int64{18446744100, 1<<63 - 1} {
		r := &response{ID: 5}
		r.RunnerInfo.Timeout = n
		require.Equal(t, maxTimeout*time.Second, parse(Env{}, r).Meta.Timeout)
	}
	require.Zero(t, seconds(-1))
}

func TestMetadataHoldsNoSecret(t *testing.T) {
	env := Env{
		"CUSTOM_ENV_CI_JOB_ID": "5", "CUSTOM_ENV_OPEN": "open", "CUSTOM_ENV_MASKED": "s3cr3t-masked", "CUSTOM_ENV_PRIVATE": "not-public-value",
		"CUSTOM_ENV_FILE": "content", "CUSTOM_ENV_LEAK": "https://user:s3cr3t-masked@host", "CUSTOM_ENV_LEAK2": "x-not-public-value-x",
		"CUSTOM_ENV_SHORT": "1", "CUSTOM_ENV_COUNT": "11",
	}
	var r response
	require.NoError(t, json.Unmarshal([]byte(`{"id":5,"variables":[
		{"key":"OPEN","value":"open","public":true},
		{"key":"MASKED","value":"s3cr3t-masked","masked":true},
		{"key":"PRIVATE","value":"not-public-value"},
		{"key":"SHORT","value":"1"},
		{"key":"FILE","value":"content","public":true,"file":true},
		{"key":"LEAK","value":"https://user:$MASKED@host","public":true},
		{"key":"LEAK2","value":"x-$PRIVATE-x","public":true},
		{"key":"COUNT","value":"11","public":true}],
		"services":[{"name":"db:$COUNT","alias":"$OPEN","variables":[{"key":"PW","value":"$MASKED"},{"key":"RAW","value":"$MASKED","raw":true}]}]}`), &r))
	j := parse(env, &r)
	require.Equal(t, map[string]string{"OPEN": "open", "COUNT": "11"}, j.Meta.Variables)
	// A service gets what its author gave it; its variables travel in a Secret.
	service := j.Shape.Services[0]
	require.Equal(t, "db:11", service.Name)
	require.Equal(t, []string{"open"}, service.Aliases)
	require.Equal(t, "s3cr3t-masked", service.Variables["PW"])
	require.Equal(t, "$MASKED", service.Variables["RAW"])
	require.Equal(t, "https://user:s3cr3t-masked@host", service.Variables["LEAK"])
	require.NotContains(t, service.Variables, "FILE")
	require.NotContains(t, service.Variables, "MASKED")
}

func TestALaterVariableReplacesAnEarlierOne(t *testing.T) {
	env := Env{"CUSTOM_ENV_CI_JOB_ID": "5", "CUSTOM_ENV_X": "masked-now"}
	j := parse(env, &response{Variables: []variable{{Key: "X", Public: true}, {Key: "X", Masked: true}}})
	require.Empty(t, j.Meta.Variables)
}

func TestWhatTheResponseSaysAboutTheImage(t *testing.T) {
	env := Env{"CUSTOM_ENV_CI_JOB_ID": "5", "CUSTOM_ENV_TAG": "3.22"}
	var r response
	require.NoError(t, json.Unmarshal([]byte(`{"id":5,"image":{"name":"alpine:$TAG","pull_policy":["always"],"executor_opts":{"kubernetes":{"user":"1000:1000"}}},"runner_info":{"timeout":60}}`), &r))
	j := parse(env, &r)
	require.Equal(t, factory.Job{Image: "alpine:3.22", PullPolicy: []string{"always"}, User: "1000:1000"}, j.Shape)
	require.Equal(t, time.Minute, j.Meta.Timeout)
}

func TestBadInput(t *testing.T) {
	folder := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(folder, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	for sentence, test := range map[string]struct {
		path string
		says string
	}{
		"no response":                   {"", "JOB_RESPONSE_FILE is not set"},
		"a response that isn't there":   {filepath.Join(folder, "none"), "read JOB_RESPONSE_FILE"},
		"a response that is cut":        {file("cut.json", `{"token":"s3cr3t"`), "is not the JSON of a job"},
		"a response without an id":      {file("nobody.json", `{"token":"s3cr3t"}`), "names no job"},
		"a response that can't be read": {folder, "read JOB_RESPONSE_FILE"},
	} {
		t.Run(sentence, func(t *testing.T) {
			env := Env{"CUSTOM_ENV_CI_JOB_ID": "5", "JOB_RESPONSE_FILE": test.path}
			for _, read := range []func(Env) error{
				func(env Env) error { _, err := Read(env); return err },
				func(env Env) error { _, err := ID(env); return err },
			} {
				err := read(env)
				require.ErrorContains(t, err, test.says)
				require.NotContains(t, err.Error(), "s3cr3t", "an error may stand in a job's log")
			}
		})
	}
}

func TestOverwritesAreNamedWithoutTheirValues(t *testing.T) {
	j := parse(Env{
		"CUSTOM_ENV_KUBERNETES_BEARER_TOKEN": "s3cr3t", "CUSTOM_ENV_KUBERNETES_SERVICE_CPU_LIMIT": "2",
		"CUSTOM_ENV_KUBERNETES_POD_LABELS_1": "a=b", "CUSTOM_ENV_KUBERNETES_PORT": "tcp://10.0.0.1:443", "CUSTOM_ENV_KUBERNETES_MEMORY_REQUEST": "",
		"KUBERNETES_CPU_LIMIT": "2",
	}, &response{ID: 5})
	require.Equal(t, []string{"idlecount doesn't honour KUBERNETES_BEARER_TOKEN, KUBERNETES_POD_LABELS_1, KUBERNETES_SERVICE_CPU_LIMIT: the pod is as the runner's configuration says"}, j.Warnings)
}
