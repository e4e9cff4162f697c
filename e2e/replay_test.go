package e2e_test

import (
	"archive/zip"
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"idlecount.dev/idlecount/e2e/images"
	"idlecount.dev/idlecount/e2e/runner"
)

// replay runs a recorded job, its scripts as GitLab Runner wrote them.
func (s *site) replay(name string, image images.Name, replace ...string) runner.Result {
	s.t.Helper()
	recording, err := runner.LoadRecording(name, runner.Changes{ID: nextID(), Image: s.ref(image),
		Replace: append([]string{"redis:7", s.ref(images.Service)}, replace...)})
	require.NoError(s.t, err)
	result := s.runner.Run(s.t.Context(), recording, nil)
	s.t.Logf("job log:\n%s", shorten(result.Log))
	return result
}

func TestRecordedJobWithServiceFilesAndAfterScript(t *testing.T) {
	t.Parallel()
	for _, image := range []images.Name{images.JobBash, images.JobBusybox} {
		t.Run(string(image), func(t *testing.T) {
			t.Parallel()
			s := newSite(t, nil)
			result := s.replay("job-101", image)
			require.Equal(t, runner.Success, result.Status)
			script := string(result.Output("build_script"))
			require.Contains(t, script, "\ngreeting=hi job101 raw=$NOEXPAND\n")
			require.Contains(t, script, "\nfile var is /builds/grp/prj.tmp/MY_FILE\nfile-content\n")
			require.Contains(t, script, "\n/builds/grp/prj\n0\n", "nothing of the driver's environment is in the script's")
			require.Contains(t, string(result.Output("after_script")), "\nafter success\n")
		})
	}
}

func TestRecordedJobThatFails(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	result := s.replay("job-102", images.JobBash)
	require.Equal(t, runner.ScriptFailure, result.FailureReason)
	require.Equal(t, 7, result.ExitCode)
}

func TestRecordedJobWithCacheAndArtifacts(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	for sentence, taken := range map[string]bool{"GitLab takes the artifacts": true, "GitLab doesn't": false} {
		t.Run(sentence, func(t *testing.T) {
			var mu sync.Mutex
			var archive []byte
			url := serveToPods(t, s, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				file, _, err := r.FormFile("file")
				if err != nil || !taken || r.Header.Get("JOB-TOKEN") != "jobtok-106" {
					http.NotFound(w, r)
					return
				}
				archive, _ = io.ReadAll(file)
				w.WriteHeader(http.StatusCreated)
			}))
			result := s.replay("job-106", images.JobBash, "http://127.0.0.1:8929", url)
			require.Contains(t, string(result.Output("restore_cache")), "Failed to extract cache", "a new pod has an empty cache folder")
			require.Contains(t, string(result.Output("archive_cache")), "Created cache")
			if !taken {
				require.Equal(t, runner.ScriptFailure, result.FailureReason)
				require.Contains(t, string(result.Log), "404")
				return
			}
			require.Equal(t, runner.Success, result.Status)
			mu.Lock()
			defer mu.Unlock()
			content, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
			require.NoError(t, err)
			file, err := content.Open("out/a.txt")
			require.NoError(t, err)
			text, err := io.ReadAll(file)
			require.NoError(t, err)
			require.Equal(t, "hi\n", string(text))
		})
	}
}

func TestRecordedJobThatClones(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	root := t.TempDir()
	sha := makeRepository(t, filepath.Join(root, "grp/prj.git"))
	backend := &cgi.Handler{Path: "/usr/lib/git-core/git-http-backend", Env: []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1"}}
	url := serveToPods(t, s, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		if user != "gitlab-ci-token" || password != "jobtok-107" {
			w.Header().Set("WWW-Authenticate", `Basic realm="GitLab"`)
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		backend.ServeHTTP(w, r)
	}))
	// The job's own script calls git, too.
	result := s.replay("job-107", images.Helper, "gitlab.example.com", strings.TrimPrefix(url, "http://"),
		strings.Repeat("0123456789", 4), sha)
	require.Equal(t, runner.Success, result.Status)
	require.Contains(t, string(result.Output("build_script")), sha[:7]+" the commit")
	require.Contains(t, string(result.Output("build_script")), "\nREADME\n")

	wrong := s.replay("job-107", images.Helper, "gitlab.example.com", strings.TrimPrefix(url, "http://"), "jobtok-107@", "jobtok-000@")
	require.Equal(t, runner.ScriptFailure, wrong.FailureReason, "a clone that fails is the job's failure")
	_, ran := wrong.Call("build_script")
	require.False(t, ran)
}

// makeRepository makes a bare repository with one commit on main.
func makeRepository(t *testing.T, bare string) (sha string) {
	t.Helper()
	work := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(work, "README"), []byte("hi\n"), 0o600))
	for _, args := range [][]string{
		{"init", "-q", "-b", "main"}, {"add", "README"},
		{"-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "-m", "the commit"},
		{"clone", "-q", "--bare", ".", bare}, {"rev-parse", "HEAD"},
	} {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = work
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "git %v: %s", args, out)
		sha = strings.TrimSpace(string(out))
	}
	return sha
}

// serveToPods serves HTTP on an address of this machine that pods reach: that of the node, which is this machine.
func serveToPods(t *testing.T, s *site, handler http.Handler) (url string) {
	t.Helper()
	nodes, err := s.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, node := range nodes.Items {
		for _, address := range node.Status.Addresses {
			if address.Type != corev1.NodeInternalIP {
				continue
			}
			listener, err := net.Listen("tcp", net.JoinHostPort(address.Address, "0"))
			if err != nil {
				continue // another machine
			}
			server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: handler}} //nolint:gosec // a test's
			server.Start()
			t.Cleanup(server.Close)
			return server.URL
		}
	}
	t.Skip("no node of the cluster is this machine: pods can't reach this test")
	return ""
}
