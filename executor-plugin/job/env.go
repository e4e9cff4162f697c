package job

import "strings"

// Prefix is what GitLab Runner puts before the names of a job's variables, so that a job can't set those of the driver.
const Prefix = "CUSTOM_ENV_"

// Env is the environment of a process, by name.
type Env map[string]string

// Environ makes an Env of what os.Environ returns. Of a name that stands twice the last one counts, as in a shell.
func Environ(environ []string) Env {
	env := make(Env, len(environ))
	for _, entry := range environ {
		if name, value, ok := strings.Cut(entry, "="); ok {
			env[name] = value
		}
	}
	return env
}

// Job returns a variable of the job, "" where it has none of that name.
func (e Env) Job(name string) string { return e[Prefix+name] }
