package config

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"idlecount.dev/idlecount/entrypoint/wire"
)

// checker gathers what is wrong with one runner, and what is worth a warning.
type checker struct {
	*entry
	problems []Problem
	warnings []Problem
}

// check validates a runner that is put together. What isn't managed is left alone.
func check(e *entry) *checker {
	c := &checker{entry: e}
	if !e.runner.Managed() {
		return c
	}
	c.identity()
	if !e.runner.foreign() {
		c.folders()
	}
	c.idle()
	c.policies()
	c.autoscaler()
	c.images()
	c.overrides()
	c.allowed()
	c.resources()
	c.placement()
	c.affinity()
	c.metadata()
	c.security()
	c.services()
	c.unhonoured()
	return c
}

// wrong reports a problem of a key, whose path is relative to the runner. Where the value couldn't even be taken, that has
// been said, and what would follow from it is noise.
func (c *checker) wrong(key, format string, args ...any) {
	if !c.broken(key) {
		c.problems = append(c.problems, c.at(key, format, args...))
	}
}

func (c *checker) warn(key, format string, args ...any) {
	c.warnings = append(c.warnings, c.at(key, format, args...))
}

// broken says whether the value of a key couldn't be taken.
func (c *checker) broken(key string) bool {
	place := c.at(key, "")
	return slices.ContainsFunc(c.badValues, func(p Problem) bool { return p.File == place.File && p.Path == place.Path })
}

// identity is what a runner is found and named by.
func (c *checker) identity() {
	r := c.runner
	keeps := r.HasIdle || r.readsAutoscaler()
	if keeps && r.Name == "" {
		c.wrong("name", "is missing: idlecount shows the runner's pools under it")
	}
	if keeps && r.Token == "" {
		c.wrong("token", "is missing: the runner's pods are found by its first nine characters")
	}
	c.token()
	if r.Limit < 0 {
		c.wrong("limit", "%d is negative; 0 is unlimited", r.Limit)
	}
	if r.Shell != "bash" && r.Shell != "sh" {
		c.wrong("shell", "%q is not supported: use bash or sh", r.Shell)
	}
	switch {
	case r.Executor == ExecutorCustom, r.foreign(): // any job finds the room that is kept for it
	case r.Executor == executorKubernetes:
		c.warn("executor", `is "kubernetes": GitLab Runner's own executor makes its own pods and will never claim an idle one; `+
			`only "custom" does, with idlecount-executor in [runners.custom]; or set idle_strategy = "pause", which keeps room for the pods that it makes`)
	default:
		c.warn("executor", `is %q: its jobs will never claim an idle pod; only "custom" does, with idlecount-executor in [runners.custom]`,
			r.Executor)
	}
}

// token finds the placeholder of an example: pools and labels would be named after it. No more of it is shown than a
// character that no token has.
func (c *checker) token() {
	token := c.runner.Token
	foreign := strings.IndexFunc(token, func(r rune) bool {
		return r != '-' && r != '_' && r != '.' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
	switch {
	case token == "":
	case foreign >= 0:
		r, _ := utf8.DecodeRuneInString(token[foreign:])
		c.wrong("token", "holds %q, which no token of GitLab's does: put the runner's own token there, or a variable of the environment such as $RUNNER_TOKEN", r)
	case c.runner.ShortToken() == "":
		c.wrong("token", "has nothing after its prefix: put the runner's own token there, or a variable of the environment such as $RUNNER_TOKEN")
	}
}

// folders are where jobs work; each is a volume of the pod.
func (c *checker) folders() {
	for _, d := range []struct{ key, dir string }{{"builds_dir", c.runner.BuildsDir}, {"cache_dir", c.runner.CacheDir}} {
		clean := path.Clean(d.dir)
		switch {
		case strings.ContainsAny(d.dir, "$:"):
			c.wrong(d.key, "%q holds a character that a mount path can't have ($ or :); variables are not expanded here", d.dir)
		case !path.IsAbs(clean) || clean == "/":
			c.wrong(d.key, "%q is not an absolute path below /", d.dir)
		case within(clean, wire.Dir) || within(wire.Dir, clean):
			c.wrong(d.key, "%q holds idlecount's own files in a pod (%s): choose another", d.dir, wire.Dir)
		}
	}
	if path.Clean(c.runner.BuildsDir) == path.Clean(c.runner.CacheDir) {
		c.wrong("cache_dir", "%q is builds_dir too: a pod can't mount two volumes at one path", c.runner.CacheDir)
	}
}

func within(dir, outer string) bool { return dir == outer || strings.HasPrefix(dir, outer+"/") }

// unhonoured warns of GitLab's keys that would make another pod than the one that idlecount makes.
func (c *checker) unhonoured() {
	if c.runner.foreign() {
		return // its executor honours them
	}
	for _, u := range unhonouredKeys() {
		key := "kubernetes." + u.key
		if !c.isSet(key) {
			continue
		}
		message := "is set and not honoured yet"
		if u.note != "" {
			message += ": " + u.note
		}
		c.warn(key, "%s", message)
	}
}

// duplicateTokens finds runners that a driver couldn't tell apart.
func duplicateTokens(entries []*entry) []Problem {
	var problems []Problem
	first := map[string]*entry{}
	for _, e := range entries {
		if !e.runner.Managed() || e.runner.ShortToken() == "" {
			continue
		}
		short := named(e.runner.ShortToken())
		other, taken := first[short]
		if !taken {
			first[short] = e
			continue
		}
		problems = append(problems, e.at("token", "begins like the token of %s (%s): pods, pools and capacities are named after %s",
			other.runner.Path, fmt.Sprintf("%q", other.runner.Name), "its first nine characters, in lower case and with - for all but letters and digits"))
	}
	return problems
}

// named is what of a token tells names of objects apart; factory makes them.
func named(short string) string {
	return strings.Trim(strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' {
			return c
		}
		return '-'
	}, strings.ToLower(short)), "-")
}
