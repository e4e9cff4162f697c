package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/executor-plugin/job"
	"idlecount.dev/idlecount/executor-plugin/kube"
)

func TestParse(t *testing.T) {
	for sentence, test := range map[string]struct {
		args []string
		env  job.Env
		uid  int
		want Call
		says string
	}{
		"as GitLab Runner calls config": {args: []string{"config"}, want: Call{Stage: "config", Files: []string{"/etc/gitlab-runner/config.toml"}}},
		"as GitLab Runner calls run": {args: []string{"run", "/tmp/script75942198/script", "build_script"},
			want: Call{Stage: "run", Files: []string{"/etc/gitlab-runner/config.toml"}, Script: "/tmp/script75942198/script", Part: "build_script"}},
		"a stage that nobody knows yet is passed on": {args: []string{"run", "s", "step_release"},
			want: Call{Stage: "run", Files: []string{"/etc/gitlab-runner/config.toml"}, Script: "s", Part: "step_release"}},
		"flags before the stage": {args: []string{"--config", "a", "--config=b", "--kubeconfig", "k", "prepare"},
			want: Call{Stage: "prepare", Files: []string{"a", "b"}, Access: kube.Access{Kubeconfig: "k"}}},
		"flags after the stage": {args: []string{"run", "--config", "a", "--context", "c", "s", "get_sources"},
			want: Call{Stage: "run", Files: []string{"a"}, Access: kube.Access{Context: "c"}, Script: "s", Part: "get_sources"}},
		"CONFIG_FILE": {args: []string{"cleanup"}, env: job.Env{"CONFIG_FILE": "/c.toml", "KUBECONFIG": "/k"},
			want: Call{Stage: "cleanup", Files: []string{"/c.toml"}, Access: kube.Access{FromEnv: "/k"}}},
		"a user who isn't root": {args: []string{"cleanup"}, env: job.Env{"HOME": "/home/ci"}, uid: 1000,
			want: Call{Stage: "cleanup", Files: []string{"/home/ci/.gitlab-runner/config.toml"}}},
		"a user without a home": {args: []string{"cleanup"}, uid: 1000, says: "give --config, or set CONFIG_FILE"},
		"a stage that isn't":    {args: []string{"warmup"}, says: "warmup"},
		"run without a script":  {args: []string{"run", "--config", "a"}, says: "accepts 2 arg(s)"},
		"a flag that isn't":     {args: []string{"config", "--kubekonfig", "x"}, says: "unknown flag: --kubekonfig"},
		"the version":           {args: []string{"version"}, want: Call{Stage: "version"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			call, err := parse(test.args, test.env, test.uid)
			if test.says != "" {
				require.ErrorContains(t, err, test.says)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.want, call)
		})
	}
}

func TestParseHelp(t *testing.T) {
	call, err := parse([]string{"--help"}, nil, 0)
	require.NoError(t, err)
	require.Empty(t, call.Stage)
	for _, word := range []string{"config", "prepare", "run", "cleanup", "--kubeconfig", "GitLab Runner calls this driver", "[runners.custom]", "$SYSTEM_FAILURE_EXIT_CODE"} {
		require.Contains(t, call.Text, word)
	}
}

func TestVersion(t *testing.T) {
	var out strings.Builder
	require.Zero(t, run([]string{"version"}, nil, streams{&out, &out}, 0))
	require.Regexp(t, `^idlecount-executor \S+ \(protocol \d+, go\S+, linux/`, out.String())
}
