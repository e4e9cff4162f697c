package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"

	"idlecount.dev/idlecount/internal/version"
)

// maxFile bounds a file, in bytes: a ConfigMap can't hold more, and whatever is larger is not a config.toml.
const maxFile = 1 << 20

// Load reads config.toml files. Each after the first adds to, and overrides, the [[runners]] entries of the same name in
// those before it. $VAR and ${VAR} in token and url are taken from the environment, as GitLab Runner does. The error holds
// every Problem of all files, in order (see Problems); what works, but probably not as meant, is in Config.Warnings.
func Load(paths []string, judges ...Judge) (*Config, error) {
	files, err := readAll(paths)
	if err != nil {
		return nil, err
	}
	return load(files, os.LookupEnv, judges...)
}

// Judge looks for more in a runner in which nothing is wrong so far. It is an argument since the driver reads files too,
// and would start slowly with what it takes to know, say, what a patch makes of a pod.
type Judge func(r Runner) (wrong, warnings []Finding)

// Finding is what a Judge says of a key, whose path is relative to the runner.
type Finding struct{ Key, Message string }

// Check is Load for whoever shows what is in the files of a runner. It also looks at what neither the manager nor the driver
// reads: whether GitLab Runner calls the driver as it can be called ([runners.custom]), and whether an image is missing that
// only a release of idlecount has. The warnings are there beside an error, too.
func Check(paths []string, judges ...Judge) (cfg *Config, warnings []Problem, err error) {
	files, err := readAll(paths)
	if err != nil {
		return nil, nil, err
	}
	return inspect(files, os.LookupEnv, version.Tag() != version.Development, judges...)
}

// LoadRunner is Load for whoever works for one runner: the entry of that name, or, where name is empty, the only one whose
// executor is "custom". A mistake in another runner's entry is no reason to fail this one's jobs. The error is a
// NoRunnerError where no single entry is meant.
func LoadRunner(paths []string, name string) (Runner, error) {
	files, err := readAll(paths)
	if err != nil {
		return Runner{}, err
	}
	return loadRunner(files, os.LookupEnv, name)
}

// NoRunnerError is what LoadRunner returns where no [[runners]] entry has the name, or several could be meant.
type NoRunnerError struct {
	Name string   // "" = none was asked for
	Have []string // names of the entries that there are
}

func (e *NoRunnerError) Error() string {
	switch {
	case e.Name != "":
		return fmt.Sprintf("no [[runners]] entry with the executor %q is called %q (there are: %s)", ExecutorCustom, e.Name, strings.Join(e.Have, ", "))
	case len(e.Have) == 0:
		return fmt.Sprintf("no [[runners]] entry has the executor %q", ExecutorCustom)
	default:
		return fmt.Sprintf("%d [[runners]] entries have the executor %q: %s", len(e.Have), ExecutorCustom, strings.Join(e.Have, ", "))
	}
}

func readAll(paths []string) ([]file, error) {
	if len(paths) == 0 {
		return nil, errors.New("no config file was given")
	}
	var files []file
	var problems []Problem
	for _, path := range paths {
		data, err := read(path)
		if err != nil {
			problems = append(problems, Problem{File: path, Message: "can't be read: " + reason(err), cause: err})
			continue
		}
		files = append(files, file{path: path, data: data})
	}
	if len(problems) > 0 {
		return nil, errorOf(problems)
	}
	return files, nil
}

// file is a config.toml that has been read.
type file struct {
	path string
	data []byte
}

// lookup finds a variable of the environment.
type lookup func(name string) (string, bool)

// load is Load without a system.
func load(files []file, env lookup, judges ...Judge) (*Config, error) {
	cfg, _, err := judge(files, env, func(*checker, []*entry) {}, judges)
	return cfg, err
}

// inspect is Check without a system. release says whether this build is one.
func inspect(files []file, env lookup, release bool, judges ...Judge) (*Config, []Problem, error) {
	return judge(files, env, func(c *checker, all []*entry) {
		c.driver(all)
		if !release {
			c.unreleased()
		}
	}, judges)
}

// judge finds what is wrong with files, and what deserves a warning. more may look for more in each entry.
func judge(files []file, env lookup, more func(c *checker, all []*entry), judges []Judge) (*Config, []Problem, error) {
	entries, problems, warnings, err := entriesOf(files, env)
	if err != nil {
		return nil, sorted(warnings), err
	}
	cfg := &Config{}
	for _, e := range entries {
		found := checkAll(e)
		more(found, entries)
		for _, j := range judges {
			found.ask(j)
		}
		problems = append(problems, found.problems...)
		warnings = append(warnings, found.warnings...)
		cfg.Runners = append(cfg.Runners, e.runner)
	}
	problems = append(problems, duplicateTokens(entries)...)
	if len(entries) == 0 {
		warnings = append(warnings, Problem{File: files[0].path, Message: "has no [[runners]] entry, so there is nothing to do"})
	}
	cfg.Warnings = sorted(warnings)
	if len(problems) > 0 {
		return nil, cfg.Warnings, errorOf(problems)
	}
	return cfg, cfg.Warnings, nil
}

// ask takes in what a Judge finds in a managed runner in which nothing is wrong so far.
func (c *checker) ask(j Judge) {
	if !c.runner.Managed() || len(c.problems) > 0 {
		return
	}
	wrong, warnings := j(c.runner)
	for _, f := range wrong {
		c.wrong(f.Key, "%s", f.Message)
	}
	for _, f := range warnings {
		c.warn(f.Key, "%s", f.Message)
	}
}

// loadRunner is LoadRunner without a system.
func loadRunner(files []file, env lookup, name string) (Runner, error) {
	entries, _, _, err := entriesOf(files, env) // what can't be merged isn't this runner's
	if err != nil {
		return Runner{}, err
	}
	none := &NoRunnerError{Name: name}
	var ours []*entry
	for _, e := range entries {
		if e.runner.Executor != ExecutorCustom {
			continue
		}
		none.Have = append(none.Have, strconv.Quote(e.runner.Name))
		if name == "" || e.runner.Name == name {
			ours = append(ours, e)
		}
	}
	if len(ours) != 1 {
		return Runner{}, none
	}
	if problems := checkAll(ours[0]).problems; len(problems) > 0 {
		return Runner{}, errorOf(problems)
	}
	return ours[0].runner, nil
}

// entriesOf reads the entries of all files, merged and with their defaults. The problems are those of merging, the warnings
// those of a file's top; the error is of a file that can't be parsed.
func entriesOf(files []file, env lookup) (entries []*entry, problems, warnings []Problem, err error) {
	tables := make([][]table, 0, len(files))
	for _, f := range files {
		runners, misspelt, problem := parse(f)
		if problem != nil {
			problems = append(problems, *problem)
		}
		warnings = append(warnings, misspelt...)
		tables = append(tables, runners)
	}
	if len(problems) > 0 {
		return nil, nil, warnings, errorOf(problems)
	}
	entries, problems = merge(tables)
	for _, e := range entries {
		e.expand(env)
		e.fillDefaults()
	}
	return entries, problems, warnings, nil
}

// checkAll finds what is wrong with one entry, and what deserves a warning.
func checkAll(e *entry) *checker {
	found := check(e)
	found.problems = append(found.problems, e.unknown...)
	found.warnings = append(found.warnings, e.spelling()...)
	if e.runner.Managed() {
		found.problems = append(found.problems, e.badValues...)
	}
	return found
}

func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("it is larger than %d KiB", maxFile>>10)
	}
	return data, nil
}

// reason is what the system said, without the path, which the problem names already.
func reason(err error) string {
	if e, ok := errors.AsType[*os.PathError](err); ok {
		return e.Err.Error()
	}
	return err.Error()
}

// table is one [[runners]] entry as it stands in one file.
type table struct {
	file string
	root string // e.g. "runners[0]"
	keys map[string]any
}

// parse reads the [[runners]] of a file, and looks at nothing else in it but at what may have been meant by it.
func parse(f file) ([]table, []Problem, *Problem) {
	if line, column := tooDeep(f.data); line > 0 {
		return nil, nil, &Problem{File: f.path, Line: line, Column: column,
			Message: fmt.Sprintf("tables and lists are more than %d deep in each other here", maxNesting)}
	}
	var root map[string]any
	if _, err := toml.Decode(string(f.data), &root); err != nil {
		return nil, nil, new(syntaxProblem(f.path, err))
	}
	var tables []table
	for _, key := range sortedKeys(root) {
		if !strings.EqualFold(key, "runners") {
			continue
		}
		list, ok := tablesOf(root[key])
		if !ok {
			return nil, nil, &Problem{File: f.path, Path: key,
				Message: "must be a list of tables, it is " + describe(root[key]) + ": each runner begins with [[runners]], in double brackets"}
		}
		for i, keys := range list {
			tables = append(tables, table{file: f.path, root: fmt.Sprintf("runners[%d]", i), keys: keys})
		}
	}
	return tables, misspeltRunners(f.path, root), nil
}

// syntaxProblem says where a file can't be parsed. A message that could quote a token is replaced.
func syntaxProblem(path string, err error) Problem {
	parse, ok := errors.AsType[toml.ParseError](err)
	if !ok {
		return Problem{File: path, Message: strings.TrimPrefix(err.Error(), "toml: ")}
	}
	message := parse.Message
	last := parse.LastKey[strings.LastIndex(parse.LastKey, ".")+1:]
	switch {
	case strings.Contains(strings.ToLower(last), "token"):
		message = "the value of " + last + " can't be read: it must be text in quotes"
	case strings.Contains(message, "to end with a newline") || strings.Contains(message, "expected value but found"):
		message += " (texts and durations stand in quotes)"
	}
	return Problem{File: path, Line: parse.Position.Line, Column: parse.Position.Col, Message: message}
}

// tablesOf takes a list of tables in either of the ways that TOML writes them.
func tablesOf(value any) ([]map[string]any, bool) {
	switch v := value.(type) {
	case []map[string]any:
		return v, true
	case []any:
		list := make([]map[string]any, 0, len(v))
		for _, element := range v {
			t, ok := element.(map[string]any)
			if !ok {
				return nil, false
			}
			list = append(list, t)
		}
		return list, true
	}
	return nil, false
}
