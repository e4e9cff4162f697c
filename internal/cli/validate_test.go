package cli_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"idlecount.dev/idlecount/internal/cli"
)

const (
	good   = "testdata/config/good.toml"
	second = "testdata/config/second.toml"
)

func TestValidate(t *testing.T) {
	t.Run("a good file is said to be good, and stdout stays empty", func(t *testing.T) {
		code, stdout, stderr := idlecount(t.Context(), "validate", "--config", good)
		require.Equal(t, cli.ExitOK, code, stderr)
		require.Empty(t, stdout)
		require.Equal(t, "warning: "+good+": runners[0].kubernetes.bearer_token: is set and not honoured yet: "+
			"use a kubeconfig, cert_file and key_file, or the service account of the pod\n"+
			"good.toml is valid: 2 runners with [runners.kubernetes], 2 pools\n", stderr)
	})
	t.Run("two files are read as one, and -o json prints the pools", func(t *testing.T) {
		code, stdout, stderr := idlecount(t.Context(), "validate", "-c", good, "-c", second, "-o", "json")
		require.Equal(t, cli.ExitOK, code, stderr)
		require.Contains(t, stderr, "good.toml and second.toml are valid: 2 runners with [runners.kubernetes], 3 pools\n")
		golden(t, "validate.json", stdout)
	})
	t.Run("every problem is named at once, with its path", func(t *testing.T) {
		code, stdout, stderr := idlecount(t.Context(), "validate", "-c", "testdata/config/bad.toml")
		require.Equal(t, cli.ExitError, code)
		require.Empty(t, stdout)
		lines := strings.Split(strings.TrimSpace(stderr), "\n")
		for _, path := range []string{
			"runners[0].kubernetes.cpu_request: ", "runners[0].kubernetes.idle_count: ", "runners[0].kubernetes.idle_policy[0].periods[0]: ",
			"runners[0].kubernetes.idle_policy[0].timezone: ", "runners[0].kubernetes.idle_tmie: unknown key: did you mean idle_time?",
		} {
			require.Contains(t, stderr, "error: testdata/config/bad.toml: "+path)
		}
		require.Equal(t, "warning: testdata/config/bad.toml: runners[0].kubernetes.memroy_request: unknown key, which nothing reads: did you mean memory_request?", lines[0],
			"an error hides no warning")
		require.Len(t, lines, 6, "one line each: %s", stderr)
	})
	t.Run("a file that doesn't parse is an error with line and column, which doesn't quote the token", func(t *testing.T) {
		code, _, stderr := idlecount(t.Context(), "validate", "-c", "testdata/config/broken.toml")
		require.Equal(t, cli.ExitError, code)
		require.Contains(t, stderr, "error: testdata/config/broken.toml:3:9: ")
		require.NotContains(t, stderr, "glrt")
	})
	t.Run("CONFIG_FILE is GitLab Runner's own variable", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "of-the-environment.toml")
		t.Setenv("CONFIG_FILE", path)
		code, _, stderr := idlecount(t.Context(), "validate")
		require.Equal(t, cli.ExitError, code)
		require.Equal(t, "error: "+path+": can't be read: no such file or directory\n", stderr)
	})
	t.Run("a patch that can't be applied is refused by all with the same words", func(t *testing.T) {
		const patched = "testdata/config/patch.toml"
		for _, args := range [][]string{{"validate"}, {"run"}, {"manifests", "--image", "x"}, {"plan"}, {"doctor"}, {"schedule"}} {
			code, stdout, stderr := idlecount(t.Context(), append(args, "-c", patched)...)
			require.Equal(t, cli.ExitError, code, args)
			require.Empty(t, stdout)
			require.Equal(t, "error: "+patched+": runners[0].kubernetes.pod_spec[1].patch: can't be applied to the pod of a job: "+
				"error in remove for path: '/none': Unable to remove nonexistent key: none: missing value\n", stderr, args)
		}
	})
	t.Run("run and manifests refuse the same file with the same words", func(t *testing.T) {
		_, _, all := idlecount(t.Context(), "validate", "-c", "testdata/config/bad.toml")
		_, want, _ := strings.Cut(all, "\n") // the warning
		for _, args := range [][]string{{"run"}, {"manifests", "--image", "x"}} {
			code, stdout, stderr := idlecount(t.Context(), append(args, "-c", "testdata/config/bad.toml")...)
			require.Equal(t, cli.ExitError, code)
			require.Equal(t, want, stderr)
			require.Empty(t, stdout)
		}
	})
}

// How GitLab Runner calls the driver is nothing to the manager, whose file may well not say it.
func TestOnlyValidateChecksHowTheDriverIsCalled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.toml")
	content, err := os.ReadFile(good)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, []byte(strings.ReplaceAll(string(content), `"--runner", "nightly", `, "")), 0o600))
	code, _, stderr := idlecount(t.Context(), "validate", "-c", path)
	require.Equal(t, cli.ExitError, code)
	for _, stage := range []string{"config", "prepare", "run", "cleanup"} {
		require.Contains(t, stderr, "error: "+path+": runners[2].custom."+stage+`_args: lack "--runner", "nightly": 2 [[runners]] entries have the executor "custom"`)
	}
	code, _, stderr = idlecount(t.Context(), "manifests", "-c", path, "--image", "x")
	require.Equal(t, cli.ExitOK, code, stderr)
}

func TestValidateEndsWhenItIsAskedTo(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	time.AfterFunc(10*time.Millisecond, cancel)
	code, stdout, stderr := idlecount(ctx, "validate", "-c", pipe) // nobody will ever write into it
	require.Equal(t, cli.ExitError, code)
	require.Empty(t, stdout)
	require.Equal(t, "error: interrupted: the files have not been checked\n", stderr)
}

func TestAFileWithoutConfig(t *testing.T) {
	for _, command := range []string{"validate", "run", "doctor", "plan", "schedule", "convert", "manifests"} {
		code, stdout, stderr := idlecount(t.Context(), command, "dir/x.toml")
		require.Equal(t, cli.ExitUsage, code)
		require.Empty(t, stdout)
		require.Equal(t, `error: "dir/x.toml" looks like a file: name it with --config dir/x.toml`+"\nsee 'idlecount "+command+" --help'\n", stderr)
	}
	code, _, stderr := idlecount(t.Context(), "version", "x")
	require.Equal(t, cli.ExitUsage, code)
	require.Equal(t, `error: version takes no arguments, and "x" is one`+"\nsee 'idlecount version --help'\n", stderr)
}

func TestNoCommandPrintsAToken(t *testing.T) {
	config, err := os.ReadFile(good)
	require.NoError(t, err)
	require.Contains(t, string(config), "glrt-abcdefghijklmnopqrst")
	for _, args := range [][]string{
		{"validate", "-c", good, "-o", "json"},
		{"manifests", "-c", good, "--image", "x"},
		{"run", "-c", good, "--listen-address", "", "--server", refusing(t, metav1.Status{Status: "Failure", Reason: metav1.StatusReasonUnauthorized, Code: 401}), "--log-level", "debug"},
	} {
		_, stdout, stderr := idlecount(t.Context(), args...)
		for _, secret := range []string{"jklmnopqrst", "s3cr3t-of-the-cache", "s3cr3t-of-the-cluster"} {
			require.NotContains(t, stdout+stderr, secret, "%v", args)
		}
	}
}
