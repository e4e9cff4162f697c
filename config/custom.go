package config

import (
	"io"
	"path"
	"slices"

	"github.com/spf13/pflag"
)

// driverName is the program that GitLab Runner is to call.
const driverName = "idlecount-executor"

// customTable is [runners.custom], by which GitLab Runner calls a driver for each stage of a job. It is no part of a Runner:
// neither the manager nor the driver acts on it, and the manager's file need not have it.
type customTable struct {
	ConfigExec  string   `toml:"config_exec"`
	ConfigArgs  []string `toml:"config_args"`
	PrepareExec string   `toml:"prepare_exec"`
	PrepareArgs []string `toml:"prepare_args"`
	RunExec     string   `toml:"run_exec"`
	RunArgs     []string `toml:"run_args"`
	CleanupExec string   `toml:"cleanup_exec"`
	CleanupArgs []string `toml:"cleanup_args"`
}

// call is how GitLab Runner calls the driver for one stage.
type call struct {
	stage   string
	exec    string
	args    []string
	without string // what happens where the stage isn't called
}

func (t customTable) calls() []call {
	return []call{
		{"config", t.ConfigExec, t.ConfigArgs, "GitLab Runner would not know where jobs work in the pod"},
		{"prepare", t.PrepareExec, t.PrepareArgs, "no job would get a pod"},
		{"run", t.RunExec, t.RunArgs, "GitLab Runner would refuse every job"},
		{"cleanup", t.CleanupExec, t.CleanupArgs, "the pod of each job would stay until idle_abandon_time"},
	}
}

// driverFlags are what the driver reads from its arguments.
type driverFlags struct {
	files  []string
	runner string
}

// parseCall reads the arguments of a stage as the driver does: flags at any place, and the stage.
func parseCall(args []string) (driverFlags, []string, error) {
	var f driverFlags
	set := pflag.NewFlagSet(driverName, pflag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.StringArrayVar(&f.files, "config", nil, "")
	set.StringVar(&f.runner, "runner", "", "")
	set.String("kubeconfig", "", "")
	set.String("context", "", "")
	err := set.Parse(args)
	return f, set.Args(), err
}

// driver checks whether GitLab Runner calls the driver of one runner, in every stage, as it can be called. all are the
// entries of the file: the driver must be told which of them calls, since a job could claim to be any other's.
func (c *checker) driver(all []*entry) {
	if c.runner.Executor != ExecutorCustom || !c.runner.Managed() {
		return
	}
	if !c.isSet("custom") {
		c.wrong("custom", `is missing: with executor = "custom" GitLab Runner calls what [runners.custom] names, and without it no job runs; `+
			"name %s in config_exec, prepare_exec, run_exec and cleanup_exec", driverName)
		return
	}
	others := slices.DeleteFunc(slices.Clone(all), func(e *entry) bool { return e == c.entry || e.runner.Executor != ExecutorCustom })
	c.distinct(others)
	var first *driverFlags
	warned := map[string]bool{}
	for _, call := range c.custom.calls() {
		key := "custom." + call.stage
		switch {
		case call.exec == "":
			c.wrong(key+"_exec", "is missing: %s; set it to %q", call.without, driverName)
			continue
		case path.Base(call.exec) != driverName:
			if !warned[call.exec] {
				c.warn(key+"_exec", "%q is another program than %s: only that one claims idle pods", call.exec, driverName)
			}
			warned[call.exec] = true
			continue
		}
		flags, ok := c.arguments(key+"_args", call)
		if !ok {
			continue
		}
		c.whoCalls(key+"_args", flags.runner, others)
		if first == nil {
			first = &flags
			c.files(key+"_args", flags)
		} else if !slices.Equal(first.files, flags.files) {
			c.warn(key+"_args", "has other --config files than the stages before: a job would go on with other settings")
		}
	}
}

// distinct finds a runner that --runner can't name.
func (c *checker) distinct(others []*entry) {
	name := c.runner.Name
	if len(others) > 0 && name == "" {
		c.wrong("name", "is missing: %d [[runners]] entries have the executor %q, and the driver is told by --runner which one calls",
			len(others)+1, ExecutorCustom)
	}
	for _, other := range others {
		if name != "" && other.runner.Name == name {
			c.wrong("name", "%q is the name of %s too: the driver is told by --runner which one calls, so their names must differ", name, other.runner.Path)
		}
	}
}

// arguments reads those of one stage. It reports false where the driver would refuse them.
func (c *checker) arguments(key string, call call) (driverFlags, bool) {
	if c.broken(key) {
		return driverFlags{}, false
	}
	flags, rest, err := parseCall(call.args)
	switch {
	case err != nil:
		c.wrong(key, "are refused by %s: %s", driverName, err)
	case len(rest) == 0:
		c.wrong(key, "don't name the stage: %s needs %q there, after its flags", driverName, call.stage)
	case len(rest) > 1 || rest[0] != call.stage:
		c.wrong(key, "have %s where %s needs the stage, %q, and nothing more", quoteAll(rest), driverName, call.stage)
	default:
		return flags, true
	}
	return driverFlags{}, false
}

// whoCalls checks --runner, which the driver needs as soon as two runners could be meant.
func (c *checker) whoCalls(key, named string, others []*entry) {
	own := c.runner.Name
	switch other := slices.IndexFunc(others, func(e *entry) bool { return e.runner.Name == named }); {
	case named == own && named != "":
	case named == "" && (len(others) == 0 || own == ""): // a runner without a name is what is wrong then
	case named == "":
		c.wrong(key, `lack "--runner", %q: %d [[runners]] entries have the executor %q, and the driver starts no job without being told which one calls`,
			own, len(others)+1, ExecutorCustom)
	case other >= 0:
		c.wrong(key, `say "--runner", %q, which is %s: the jobs of this runner would run as its jobs; say %q`, named, others[other].runner.Path, own)
	default:
		c.wrong(key, `say "--runner", %q, and no [[runners]] entry with the executor %q has that name; this one's is %q`, named, ExecutorCustom, own)
	}
}

// files checks which files the driver reads. GitLab Runner starts it in a temporary folder.
func (c *checker) files(key string, flags driverFlags) {
	for _, file := range flags.files {
		if !path.IsAbs(file) {
			c.warn(key, "have --config %q, which is looked for in a temporary folder of the job: write the path from / on", file)
		}
	}
	here := map[string]bool{}
	for _, s := range c.sources {
		here[s.file] = true
	}
	if read := max(1, len(flags.files)); len(here) > read {
		c.warn(key, "let the driver read %s, and the keys of this runner are in %d: give it all of them with --config, in the same order, "+
			"or its jobs may not fit the idle pods", plural(read, "file"), len(here))
	}
}
