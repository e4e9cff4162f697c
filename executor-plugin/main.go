package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
	_ "time/tzdata" // periods have timezones, and the driver may run in an image without the system's files

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"idlecount.dev/idlecount/entrypoint/wire"
	"idlecount.dev/idlecount/executor-plugin/job"
	"idlecount.dev/idlecount/internal/version"
)

// streams are where a process writes: stdout is data (the settings, a script's output), stderr is for people. GitLab
// Runner puts both into the job's log.
type streams struct{ out, err io.Writer }

func main() {
	// What client-go logs by itself would stand in the logs of jobs.
	klog.SetLogger(logr.Discard())
	env := job.Environ(os.Environ())
	code := run(os.Args[1:], env, streams{os.Stdout, os.Stderr}, os.Geteuid())
	os.Exit(code)
}

// run is main without a process.
func run(args []string, env job.Env, std streams, uid int) int {
	call, err := parse(args, env, uid)
	if err == nil {
		err = perform(call, env, std)
	}
	var script *scriptError
	if err != nil && !errors.As(err, &script) {
		say(std.err)(err.Error())
	}
	return exitCode(env, err)
}

func perform(call Call, env job.Env, std streams) error {
	switch call.Stage {
	case "":
		_, err := io.WriteString(std.out, call.Text)
		return err
	case "version":
		_, err := fmt.Fprintln(std.out, version.Line("idlecount-executor", wire.Protocol))
		return err
	}
	runner, err := runnerOf(call, env)
	if err != nil {
		return err
	}
	if call.Stage == stageConfig {
		return configure(runner, std.out)
	}
	ctx, stop := context.WithCancelCause(context.Background())
	defer stop(nil)
	cancel := onSignal(stop, call.Stage == stageRun)
	client, err := connect(call, runner, say(std.err))
	if err != nil {
		return err
	}
	j := target{runner: runner, client: client, say: say(std.err)}
	switch call.Stage {
	case stagePrepare:
		return prepare(ctx, j, env)
	case stageRun:
		return runScript(ctx, j, env, call, std.out, cancel)
	default:
		return cleanup(ctx, j, env, std.out)
	}
}

// cancelGrace is what a cancelled script has between TERM and KILL: Kubernetes' own default. GitLab Runner waits for the
// driver much longer (graceful_kill_timeout, ten minutes).
const cancelGrace = 30 * time.Second

// errStopped is the cause of a context that a signal ended.
var errStopped = errors.New("stopped by a signal")

// onSignal ends the process's work at TERM or INT. Where there is a script, the first one asks it to end, on the channel
// that is returned.
func onSignal(stop context.CancelCauseFunc, script bool) <-chan time.Duration {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	cancel := make(chan time.Duration, 1)
	go func() {
		if script {
			<-signals
			cancel <- cancelGrace
		}
		<-signals
		stop(errStopped)
	}()
	return cancel
}

// say returns how lines for people are written: each says who speaks, since the log is the job's.
func say(w io.Writer) func(line string) {
	return func(line string) {
		prefix := "idlecount: "
		if line != "" && line[0] == '\n' {
			prefix, line = "\n"+prefix, line[1:]
		}
		_, _ = fmt.Fprintln(w, prefix+line)
	}
}
