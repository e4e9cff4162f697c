package runner

import (
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// newLocal is a runner whose driver runs all scripts with this machine's bash.
func newLocal(t *testing.T) *recorder {
	t.Helper()
	p := plan{}
	for _, stage := range []string{"prepare_script", "get_sources", "clear_worktree", "restore_cache", "download_artifacts", "build_script", "step_release",
		"after_script", "archive_cache", "archive_cache_on_failure", "upload_artifacts_on_success", "upload_artifacts_on_failure", "cleanup_file_variables"} {
		p[stage] = []step{{Run: true}}
	}
	r := newRecorder(t, p)
	r.BuildsDir, r.CacheDir = t.TempDir(), t.TempDir()
	return r
}

func TestGeneratedScriptsRun(t *testing.T) {
	for sentence, test := range map[string]struct {
		job  Job
		code int
		want string // what build_script prints after the line that names the command
	}{
		"a command":                            {Job{Script: []string{"echo hi"}}, 0, "hi\n"},
		"an exit code":                         {Job{Script: []string{"exit 7"}}, 7, ""},
		"a command that fails ends the script": {Job{Script: []string{"false", "echo no"}}, 1, ""},
		"a pipe that fails ends the script":    {Job{Script: []string{"sh -c 'exit 4' | cat", "echo no"}}, 4, ""},
		"stdin is empty":                       {Job{Script: []string{"cat; echo rest"}}, 0, "rest\n"},
		"it starts in the project":             {Job{Script: []string{`test "$PWD" = "$CI_PROJECT_DIR" && echo yes`}}, 0, "yes\n"},
		"a variable refers to another": {Job{Name: "n", Script: []string{`echo "$A"`},
			Variables: []Variable{{Key: "A", Value: "${CI_JOB_NAME}-$CI_JOB_ID"}}}, 0, "n-1\n"},
		"a raw variable doesn't": {Job{Script: []string{`echo "$A"`}, Variables: []Variable{{Key: "A", Value: "$CI_JOB_ID", Raw: true}}}, 0, "$CI_JOB_ID\n"},
		"a file variable":        {Job{Script: []string{`cat "$F"`}, Variables: []Variable{{Key: "F", Value: "x\n'y\"\\", File: true}}}, 0, "x\n'y\"\\"},
		"several lines":          {Job{Script: []string{"for i in 1 2; do\necho $i\ndone"}}, 0, "1\n2\n"},
	} {
		t.Run(sentence, func(t *testing.T) {
			r := newLocal(t)
			test.job.ID = 1
			got := r.Run(t.Context(), test.job, nil)
			require.Equal(t, test.code, got.ExitCode, "%s", got.Log)
			_, output, _ := strings.Cut(string(got.Output("build_script")), "\x1b[0;m\n")
			require.Equal(t, test.want, output)
			files, err := os.ReadDir(filepath.Join(r.BuildsDir, "grp/prj.tmp"))
			require.NoError(t, err)
			require.Empty(t, files, "cleanup_file_variables leaves nothing")
		})
	}
}

func TestLaterStagesSeeTheStatusAndRunAfterAFailure(t *testing.T) {
	job := Job{ID: 1, Script: []string{"exit 3"}, AfterScript: []string{"echo after $CI_JOB_STATUS"}, Release: []string{"echo not reached"}}
	got := newLocal(t).Run(t.Context(), job, nil)
	require.Equal(t, 3, got.ExitCode)
	require.Contains(t, string(got.Output("after_script")), "\nafter failed\n")
	require.NotContains(t, string(got.Log), "not reached")

	job.Script = []string{"true"}
	got = newLocal(t).Run(t.Context(), job, nil)
	require.Contains(t, string(got.Output("step_release")), "\nnot reached\n")
}

// Every text that a variable can have comes through bash, and through busybox's shell, as it was.
func TestQuoteKeepsEveryText(t *testing.T) {
	shells := map[string][]string{"bash": {"bash"}}
	if _, err := os.Stat("/bin/busybox"); err == nil {
		shells["busybox"] = []string{"/bin/busybox", "sh"}
	}
	random := rand.New(rand.NewPCG(1, 2))
	texts := []string{"", "'", "\\", "a b", "$HOME", "`id`", "!x", "é", "\x80\xff", "line\nline\n", "\x1b[0m", "x\\x41y", "\x07f", "$'a'"}
	for range 200 {
		text := make([]byte, random.IntN(40))
		for i := range text {
			text[i] = byte(1 + random.IntN(255))
		}
		texts = append(texts, string(text))
	}
	for name, shell := range shells {
		t.Run(name, func(t *testing.T) {
			// As in a script: a quoted word inside of a quoted word.
			var script, want strings.Builder
			for _, text := range texts {
				script.WriteString("printf '%s\\0' " + quote(text) + "\n")
				want.WriteString(text + "\x00")
			}
			cmd := exec.CommandContext(t.Context(), shell[0], shell[1:]...)
			cmd.Env = []string{"LC_ALL=C"}
			cmd.Stdin = strings.NewReader("eval " + quote(script.String()) + "\n")
			out, err := cmd.Output()
			require.NoError(t, err)
			require.Equal(t, strings.Split(want.String(), "\x00"), strings.Split(string(out), "\x00"))
		})
	}
}

func TestGeneratedScriptsClone(t *testing.T) {
	git := func(dir string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@b.c"}, args...)...)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return strings.TrimSpace(string(out))
	}
	origin := t.TempDir()
	git(origin, "init", "-q", "-b", "main")
	require.NoError(t, os.WriteFile(filepath.Join(origin, "f"), []byte("one\n"), 0o600))
	git(origin, "add", "f")
	git(origin, "commit", "-q", "-m", "one")
	job := Job{ID: 1, GitStrategy: "clone", RepoURL: "file://" + origin, SHA: git(origin, "rev-parse", "HEAD"),
		Script: []string{"cat f", "git status --porcelain", "touch untracked"}}
	r := newLocal(t)
	got := r.Run(t.Context(), job, nil)
	require.Equal(t, Success, got.Status, "%s", got.Log)
	require.Contains(t, string(got.Output("build_script")), "one\n")

	// A second job in the same folder, as with builds_dir on a host.
	git(origin, "commit", "-q", "--allow-empty", "-m", "two")
	job.GitStrategy, job.SHA = "fetch", git(origin, "rev-parse", "HEAD")
	job.Script = []string{"test ! -e untracked && git rev-parse HEAD"}
	got = r.Run(t.Context(), job, nil)
	require.Contains(t, string(got.Output("build_script")), job.SHA)

	job.SHA = strings.Repeat("a", 40)
	require.Equal(t, ScriptFailure, r.Run(t.Context(), job, nil).FailureReason)
	job.RepoURL = ""
	require.ErrorContains(t, r.Run(t.Context(), job, nil).Err, "is no address to fetch from")
}

func TestGeneratedScriptsUseCachesAndArtifacts(t *testing.T) {
	var archive []byte
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method == http.MethodGet {
			_, _ = w.Write(archive)
			return
		}
		file, _, err := req.FormFile("file")
		if err == nil {
			archive, err = io.ReadAll(file)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.WriteHeader(http.StatusCreated)
	}))
	defer server.Close()
	r := newLocal(t)
	r.URL = server.URL
	missing := Job{ID: 1, Script: []string{"true"}, Cache: []Cache{{Key: "k", Paths: []string{"out"}}}}
	require.Contains(t, string(r.Run(t.Context(), missing, nil).Log), "Missing gitlab-runner")

	bin := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", filepath.Join(bin, "gitlab-runner"), "../images/cmd/helper")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for i, line := range r.Environ {
		if path, ok := strings.CutPrefix(line, "PATH="); ok {
			r.Environ[i] = "PATH=" + bin + ":" + path
		}
	}
	job := Job{ID: 1, Script: []string{"test ! -e out", "mkdir out", "echo $CI_JOB_ID > out/id"},
		Cache:     []Cache{{Key: "k", Paths: []string{"out"}}},
		Artifacts: []Artifacts{{Name: "a", Paths: []string{"out"}}, {Name: "b", Paths: []string{"out"}, When: "on_failure"}}}
	got := r.Run(t.Context(), job, nil)
	require.Equal(t, Success, got.Status, "%s", got.Log)
	require.Contains(t, string(got.Output("restore_cache")), "Failed to extract cache")
	require.Contains(t, string(got.Output("archive_cache")), "Created cache")
	require.NotEmpty(t, archive)

	for sentence, next := range map[string]Job{
		"from the cache": {Cache: []Cache{{Key: "k", Paths: []string{"out"}, Policy: "pull"}}},
		"from artifacts": {Dependencies: []Dependency{{ID: 1, Name: "job", Token: "jobtok-2"}}},
	} {
		t.Run(sentence, func(t *testing.T) {
			require.NoError(t, os.RemoveAll(filepath.Join(r.BuildsDir, "grp/prj")))
			next.ID, next.Script = 2, []string{"cat out/id"}
			got := r.Run(t.Context(), next, nil)
			require.Equal(t, Success, got.Status, "%s", got.Log)
			require.Contains(t, string(got.Output("build_script")), "\n1\n")
		})
	}

	archive = nil
	job.Script = []string{"rm -rf out; mkdir out", "exit 5"}
	require.Equal(t, 5, r.Run(t.Context(), job, nil).ExitCode)
	require.NotEmpty(t, archive, "artifacts of a failed job")
}
