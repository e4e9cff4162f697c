package runner

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// The test binary is the driver, too: with this variable it records how it was called, does what the plan says, and ends.
const fakeDriver = "FAKE_DRIVER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(fakeDriver); dir != "" {
		os.Exit(driver(dir, os.Args[1:]))
	}
	os.Exit(m.Run())
}

// plan says what the driver does, by stage: its n-th call does the n-th step, all further ones the last.
type plan map[string][]step

type step struct {
	Exit       int
	ExitCode   string // goes to BUILD_EXIT_CODE_FILE
	Stdout     string
	Stderr     string
	Hang       bool // go on until a signal comes
	IgnoreTerm bool
	Child      bool // have a child in the same process group
	Run        bool // run the script with bash, and answer as a driver does
}

// record is how a call looked from inside.
type record struct {
	Stage    string
	Args     []string
	Env      []string
	Dir      string
	PID      int
	PGID     int
	Script   string
	Modes    map[string]os.FileMode // of response.json and the script
	Response string
	Signal   string // what ended a step that hung
	ChildPID int
}

func driver(dir string, args []string) int {
	r := record{Stage: args[0], Args: args, Env: os.Environ(), PID: os.Getpid(), PGID: syscall.Getpgrp(), Modes: map[string]os.FileMode{}}
	r.Dir, _ = os.Getwd()
	if r.Stage == "run" {
		r.Stage = args[len(args)-1]
		script := args[len(args)-2]
		content, _ := os.ReadFile(script)
		r.Script = string(content)
		r.Modes["script"] = mode(script)
	}
	response, _ := os.ReadFile(os.Getenv("JOB_RESPONSE_FILE"))
	r.Response = string(response)
	r.Modes["response"] = mode(os.Getenv("JOB_RESPONSE_FILE"))

	var p plan
	if err := json.Unmarshal([]byte(os.Getenv("FAKE_PLAN")), &p); err != nil {
		panic(err)
	}
	existing, _ := filepath.Glob(filepath.Join(dir, "*-"+r.Stage+".json"))
	var s step
	if steps := p[r.Stage]; len(steps) > 0 {
		s = steps[min(len(existing), len(steps)-1)]
	}
	return s.do(dir, r)
}

func mode(file string) os.FileMode {
	info, err := os.Stat(file)
	if err != nil {
		return 0
	}
	return info.Mode()
}

func (s step) do(dir string, r record) int {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	if s.Child {
		child := exec.Command("sleep", "1000")
		if err := child.Start(); err != nil {
			panic(err)
		}
		r.ChildPID = child.Process.Pid
	}
	file := r.save(dir, "")
	fmt.Print(s.Stdout)
	fmt.Fprint(os.Stderr, s.Stderr)
	if s.Hang {
		fmt.Println("hanging")
		r.Signal = (<-signals).String()
		r.save(dir, file)
		if s.IgnoreTerm {
			select {}
		}
	}
	if s.ExitCode != "" {
		if err := os.WriteFile(os.Getenv("BUILD_EXIT_CODE_FILE"), []byte(s.ExitCode), 0o600); err != nil {
			panic(err)
		}
	}
	if s.Run && r.Script != "" {
		return runScript(r.Script)
	}
	return s.Exit
}

// runScript answers as a driver that runs scripts on this machine.
func runScript(script string) int {
	cmd := exec.Command("bash")
	cmd.Stdin = strings.NewReader(script)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	if err := cmd.Run(); err != nil {
		code := strconv.Itoa(cmd.ProcessState.ExitCode())
		if err := os.WriteFile(os.Getenv("BUILD_EXIT_CODE_FILE"), []byte(code+"\n"), 0o600); err != nil {
			panic(err)
		}
		return buildFailureCode
	}
	return 0
}

func (r record) save(dir, file string) string {
	if file == "" {
		existing, _ := filepath.Glob(filepath.Join(dir, "*.json"))
		file = filepath.Join(dir, fmt.Sprintf("%02d-%s.json", len(existing), r.Stage))
	}
	content, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	if err := os.WriteFile(file, content, 0o600); err != nil {
		panic(err)
	}
	return file
}

// recorder is a runner whose driver is the fake one, and where that writes.
type recorder struct {
	Runner
	dir string
}

func newRecorder(t *testing.T, p plan) *recorder {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	text, err := json.Marshal(p)
	require.NoError(t, err)
	r := &recorder{dir: t.TempDir()}
	r.Runner = Runner{
		Token: "fakefakefake", URL: "https://gitlab.example.com", BuildsDir: "/builds", CacheDir: "/cache",
		Custom: Custom{ConfigExec: self, ConfigArgs: []string{"config"}, PrepareExec: self, PrepareArgs: []string{"prepare"},
			RunExec: self, RunArgs: []string{"run"}, CleanupExec: self, CleanupArgs: []string{"cleanup"}},
		Environ:         []string{"PATH=" + os.Getenv("PATH"), fakeDriver + "=" + r.dir, "FAKE_PLAN=" + string(text)},
		TempDir:         t.TempDir(),
		PrepareInterval: 1,
		StageInterval:   1,
	}
	return r
}

// records are the driver's calls as it saw them.
func (r *recorder) records(t *testing.T) []record {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(r.dir, "*.json"))
	require.NoError(t, err)
	slices.Sort(files)
	var all []record
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		var one record
		require.NoError(t, json.Unmarshal(content, &one))
		all = append(all, one)
	}
	return all
}

func stages(records []record) []string {
	var all []string
	for _, r := range records {
		all = append(all, r.Stage)
	}
	return all
}
