package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"idlecount.dev/idlecount/executor-plugin/job"
	"idlecount.dev/idlecount/executor-plugin/kube"
)

// Stages of a job, as GitLab Runner calls them.
const (
	stageConfig  = "config"
	stagePrepare = "prepare"
	stageRun     = "run"
	stageCleanup = "cleanup"
)

// Call is what one process is to do.
type Call struct {
	Stage  string // one of the stages; "" = print Text and be done
	Text   string
	Files  []string // config.toml files
	Runner string   // name of the [[runners]] entry; "" = the only one
	Access kube.Access
	Script string // run: path of the script
	Part   string // run: which part of the job the script is, e.g. build_script
}

// parse reads a command line. uid is the user's, since GitLab Runner's own default for the config file goes by it.
func parse(args []string, env job.Env, uid int) (Call, error) {
	var call Call
	root := &cobra.Command{
		Use:   "idlecount-executor",
		Short: "Run GitLab jobs in warm Kubernetes pods: the driver that GitLab Runner's custom executor calls",
		Long: `Run GitLab jobs in warm Kubernetes pods.

GitLab Runner calls this driver, once for each stage of a job, where config.toml names it as below. There is
nothing to call by hand but version; what a job gets and why is in the job's log.

Exit codes: 0, or those that GitLab Runner asks for in $BUILD_FAILURE_EXIT_CODE (else 1) where the job has
failed, and in $SYSTEM_FAILURE_EXIT_CODE (else 2) where the job isn't to blame.`,
		Example: `  [[runners]]
    name = "ci"
    executor = "custom"
    [runners.custom]
      config_exec = "idlecount-executor"
      config_args = ["--runner", "ci", "config"]
      prepare_exec = "idlecount-executor"
      prepare_args = ["--runner", "ci", "prepare"]
      run_exec = "idlecount-executor"
      run_args = ["--runner", "ci", "run"]
      cleanup_exec = "idlecount-executor"
      cleanup_args = ["--runner", "ci", "cleanup"]`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	flags := root.PersistentFlags()
	flags.StringArrayVar(&call.Files, "config", nil, "config.toml of the runner; may be given more than once (default $CONFIG_FILE, else GitLab Runner's)")
	flags.StringVar(&call.Runner, "runner", "", "name of the [[runners]] entry that calls (needed where config.toml has more than one with the custom executor)")
	flags.StringVar(&call.Access.Kubeconfig, "kubeconfig", "", "kubeconfig to use (default $KUBECONFIG, else [runners.kubernetes] host, else the pod's service account)")
	flags.StringVar(&call.Access.Context, "context", "", "context of the kubeconfig")
	for _, stage := range []struct {
		use, short string
		args       int
	}{
		{stageConfig, "Print the driver's settings for a job", 0},
		{stagePrepare, "Claim a pod for the job, or make one", 0},
		{stageRun + " SCRIPT STAGE", "Run the script of a stage in the job's pod", 2},
		{stageCleanup, "Delete the job's pod", 0},
		{"version", "Print the version of this driver and of its protocol", 0},
	} {
		root.AddCommand(&cobra.Command{Use: stage.use, Short: stage.short, Args: cobra.ExactArgs(stage.args), Run: func(cmd *cobra.Command, args []string) {
			call.Stage = cmd.Name()
			if len(args) == 2 {
				call.Script, call.Part = args[0], args[1]
			}
		}})
	}
	var text strings.Builder
	root.SetArgs(args)
	root.SetOut(&text)
	root.SetErr(&text)
	root.CompletionOptions.DisableDefaultCmd = true
	if err := root.Execute(); err != nil {
		return Call{}, fmt.Errorf("%w (try idlecount-executor --help)", err)
	}
	if call.Text = text.String(); call.Stage == "" {
		return call, nil // help was asked for
	}
	call.Access.FromEnv = env["KUBECONFIG"]
	if len(call.Files) == 0 && call.Stage != "version" {
		file, err := defaultFile(env, uid)
		call.Files = []string{file}
		return call, err
	}
	return call, nil
}

// defaultFile is where GitLab Runner has its configuration.
func defaultFile(env job.Env, uid int) (string, error) {
	switch {
	case env["CONFIG_FILE"] != "":
		return env["CONFIG_FILE"], nil
	case uid == 0:
		return "/etc/gitlab-runner/config.toml", nil
	case env["HOME"] != "":
		return filepath.Join(env["HOME"], ".gitlab-runner", "config.toml"), nil
	default:
		return "", errors.New("no config.toml: give --config, or set CONFIG_FILE")
	}
}
