package runner

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// script generates the shell script of a stage.
func (j Job) script(stage string, now moment) (string, error) {
	w := &writer{temp: now.tempDir}
	if stage == "prepare_script" {
		where := ""
		if now.hostname != "" {
			where = " via " + now.hostname
		}
		w.line(`echo "Running on $(hostname)%s..."`, where)
		w.removeFile("gitlab_runner_env")
		w.removeFile("masking.db")
		return w.finish(now.runnerShell), nil
	}
	w.variables(j.variables(now), stage != "cleanup_file_variables")
	something, err := j.body(w, stage, now)
	if err != nil || !something {
		return "", err
	}
	return w.finish(now.runnerShell), nil
}

// body writes what a stage does; false where it has nothing to do.
func (j Job) body(w *writer, stage string, now moment) (bool, error) {
	switch stage {
	case "get_sources":
		return true, j.getSources(w, now)
	case "clear_worktree":
		w.line("if [ -d %s ]; then cd %s; git clean -ffdx; git reset --hard; fi", quote(now.projectDir+"/.git"), quote(now.projectDir))
		return j.strategy() != "none", nil
	case "restore_cache":
		return j.restoreCache(w, now), nil
	case "download_artifacts":
		return j.downloadArtifacts(w, now), nil
	case "build_script":
		return w.commands(now.projectDir, "", j.Script), nil
	case "step_release":
		return w.commands(now.projectDir, "", j.Release), nil
	case "after_script":
		return w.commands(now.projectDir, "Running after script...", j.AfterScript), nil
	case "archive_cache", "archive_cache_on_failure":
		return j.archiveCache(w, now, stage == "archive_cache"), nil
	case "upload_artifacts_on_success", "upload_artifacts_on_failure":
		return j.uploadArtifacts(w, now, stage == "upload_artifacts_on_success"), nil
	case "cleanup_file_variables":
		j.cleanUp(w, now)
		return true, nil
	default:
		return false, fmt.Errorf("no script is known for stage %s", stage)
	}
}

func (j Job) refspec() string {
	ref := or(j.Ref, "main")
	return "+refs/heads/" + ref + ":refs/remotes/origin/" + ref
}

func (j Job) getSources(w *writer, now moment) error {
	w.line("export GIT_TERMINAL_PROMPT=0")
	w.line("export GIT_LFS_SKIP_SMUDGE=1")
	project := quote(now.projectDir)
	if j.strategy() == "none" {
		w.notice("Skipping Git repository setup")
		w.line("mkdir -p %s", project)
		w.notice("Skipping Git checkout")
		w.notice("Skipping Git submodules setup")
		return nil
	}
	plain, full, err := j.repository()
	if err != nil {
		return err
	}
	template, external := path.Join(now.tempDir, "git-template"), path.Join(now.tempDir, ".gitlab-runner.ext.conf")
	w.line("mkdir -p %s", quote(template))
	w.line("git config -f %s init.defaultBranch none", quote(template+"/config"))
	w.line("git config -f %s gc.autoDetach false", quote(template+"/config"))
	w.line("rm -f %s", quote(external))
	if full != plain {
		// The credential stays out of the repository's own configuration, which the job's script can read and keep.
		w.line("git config -f %s --replace-all %s %s", quote(external), quote("url."+full+".insteadOf"), quote(plain))
	}
	w.line("git config -f %s include.path %s", quote(template+"/config"), quote(external))
	if j.strategy() == "clone" {
		w.line("rm -r -f %s", project)
	}
	w.notice("Fetching changes with git depth set to 20...")
	w.line("git init %s --template %s", project, quote(template))
	w.line("cd %s", project)
	w.line("git remote add origin %s 2>/dev/null || git remote set-url origin %s", quote(plain), quote(plain))
	w.line("git fetch origin --no-recurse-submodules %s --depth 20 --prune --quiet", quote(j.refspec()))
	w.notice("Checking out " + j.SHA[:min(8, len(j.SHA))] + " as detached HEAD (ref is " + or(j.Ref, "main") + ")...")
	w.line("git checkout -f -q %s", quote(j.SHA))
	w.line("git clean -ffdx")
	return nil
}

func (j Job) restoreCache(w *writer, now moment) bool {
	caches := slices.DeleteFunc(slices.Clone(j.Cache), func(c Cache) bool { return c.Policy == "push" })
	w.line("cd %s", quote(now.projectDir))
	w.helper("Extracting cache", func() {
		for _, c := range caches {
			w.notice("Checking cache for " + c.Key + "...")
			w.try("Successfully extracted cache", "Failed to extract cache",
				"gitlab-runner cache-extractor --file %s --timeout 10", quote(cacheFile(now, c.Key)))
		}
	})
	return len(caches) > 0
}

func (j Job) archiveCache(w *writer, now moment, success bool) bool {
	caches := slices.DeleteFunc(slices.Clone(j.Cache), func(c Cache) bool { return c.Policy == "pull" || !wanted(c.When, success) })
	w.line("cd %s", quote(now.projectDir))
	w.helper("Creating cache", func() {
		for _, c := range caches {
			w.notice("Creating cache " + c.Key + "...")
			w.try("Created cache", "Failed to create cache",
				"gitlab-runner cache-archiver --file %s --timeout 10%s", quote(cacheFile(now, c.Key)), pathFlags(c.Paths))
		}
	})
	return len(caches) > 0
}

func (j Job) downloadArtifacts(w *writer, now moment) bool {
	w.line("cd %s", quote(now.projectDir))
	w.helper("Artifacts downloading", func() {
		for _, d := range j.Dependencies {
			w.notice(fmt.Sprintf("Downloading artifacts for %s (%d)...", d.Name, d.ID))
			w.line("gitlab-runner artifacts-downloader --url %s --token %s --id %d", quote(now.runner.URL), quote(d.Token), d.ID)
		}
	})
	return len(j.Dependencies) > 0
}

func (j Job) uploadArtifacts(w *writer, now moment, success bool) bool {
	all := slices.DeleteFunc(slices.Clone(j.Artifacts), func(a Artifacts) bool { return !wanted(a.When, success) })
	w.line("cd %s", quote(now.projectDir))
	w.helper("Uploading artifacts", func() {
		for _, a := range all {
			w.notice("Uploading artifacts...")
			name := ""
			if a.Name != "" {
				name = " --name " + quote(a.Name)
			}
			w.line("gitlab-runner artifacts-uploader --url %s --token %s --id %d --timeout 1h0m0s --response-header-timeout 10m0s%s%s --artifact-format zip --artifact-type archive",
				quote(now.runner.URL), quote(j.token()), j.ID, pathFlags(a.Paths), name)
		}
	})
	return len(all) > 0
}

func (j Job) cleanUp(w *writer, now moment) {
	w.removeFile("gitlab_runner_env")
	w.removeFile("masking.db")
	w.removeFile(".gitlab-runner.ext.conf")
	for _, v := range j.Variables {
		if v.File {
			w.removeFile(v.Key)
		}
	}
	for _, lock := range []string{"index.lock", "shallow.lock", "HEAD.lock", "config.lock"} {
		w.line(`rm "-f" %s`, doubleQuote(path.Join(now.projectDir, ".git", lock)))
	}
}

// wanted is whether something with this "when" is done at the end of such a job.
func wanted(when string, success bool) bool {
	return when == "always" || (or(when, "on_success") == "on_success") == success
}

func pathFlags(paths []string) string {
	var flags strings.Builder
	for _, p := range paths {
		flags.WriteString(" --path " + quote(p))
	}
	return flags.String()
}

// writer collects the lines of a script.
type writer struct {
	lines strings.Builder
	temp  string // the project's temporary folder
}

func (w *writer) line(format string, args ...any) { fmt.Fprintf(&w.lines, format+"\n", args...) }

// notice prints a line in green, as GitLab Runner's own lines are.
func (w *writer) notice(text string) { w.line("echo %s", quote("\x1b[32;1m"+text+"\x1b[0;m")) }

// removeFile removes a file of the temporary folder.
func (w *writer) removeFile(name string) { w.line(`rm "-f" %s`, doubleQuote(path.Join(w.temp, name))) }

// variables exports the job's variables, then those that earlier stages left in a file. Files of variables are written
// again by every stage: each script stands for itself.
func (w *writer) variables(variables []Variable, writeFiles bool) {
	for _, v := range variables {
		file := doubleQuote(path.Join(w.temp, v.Key))
		switch {
		case v.Key == "CI_JOB_SERVICES":
			// For drivers only.
		case !v.File:
			w.line("export %s=%s", v.Key, quote(v.Value))
		case writeFiles:
			w.line("mkdir -p %s", doubleQuote(w.temp))
			w.line("printf '%%s' %s > %s", quote(v.Value), file)
			w.line("export %s=%s", v.Key, file)
		default:
			w.line("export %s=%s", v.Key, quote(path.Join(w.temp, v.Key)))
		}
	}
	env := doubleQuote(path.Join(w.temp, "gitlab_runner_env"))
	w.line("export GITLAB_ENV=%s", quote(path.Join(w.temp, "gitlab_runner_env")))
	w.line("mkdir -p %s", doubleQuote(w.temp))
	w.line("touch %s", env)
	w.line(`while read -r line; do export "$line"; done < %s`, env)
}

// commands prints and runs the commands of a step.
func (w *writer) commands(project, title string, commands []string) bool {
	w.line("cd %s", quote(project))
	if title != "" {
		w.notice(title)
	}
	for _, command := range commands {
		first, _, more := strings.Cut(command, "\n")
		if more {
			first += " # collapsed multi-line command"
		}
		w.notice("$ " + first)
		w.line("%s", command)
	}
	return len(commands) > 0
}

// helper wraps what needs gitlab-runner where the stage runs; without it the stage only says so.
func (w *writer) helper(what string, body func()) {
	w.line("if gitlab-runner --version >/dev/null 2>&1 ; then\n:")
	body()
	w.line("else")
	w.line("echo %s", quote("\x1b[0;33mMissing gitlab-runner. "+what+" is disabled.\x1b[0;m"))
	w.line("fi")
}

// try runs a command whose failure doesn't matter to the job.
func (w *writer) try(good, bad, format string, args ...any) {
	w.line("if "+format+" ; then", args...)
	w.notice(good)
	w.line("else")
	w.line("echo %s", quote("\x1b[0;33m"+bad+"\x1b[0;m"))
	w.line("fi")
}

// finish is the whole script: all lines are one quoted word that a subshell without input evaluates, so that nothing in
// the job can read, and swallow, the rest of the script.
func (w *writer) finish(shell string) string {
	const trap = "trap 'exit 1' TERM"
	return "#!/usr/bin/env " + shell + "\n\n" +
		trap + "\n\n" +
		`case "$(set -o)" in *"pipefail"*) set -o pipefail;; esac; set -o errexit` + "\n" +
		"set +o noclobber\n" +
		"(" + trap + "; eval " + quote(w.lines.String()) + ") < /dev/null\n" +
		"exit 0\n"
}

// quote makes one word for bash, and for busybox's shell, of any text.
func quote(text string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./"
	if text != "" && strings.Trim(text, plain) == "" {
		return text
	}
	var b strings.Builder
	b.WriteString("$'")
	for i := range len(text) {
		switch c := text[i]; {
		case c == '\\' || c == '\'':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\t':
			b.WriteString(`\t`)
		case c == '\r':
			b.WriteString(`\r`)
		case c < ' ' || c > '~':
			fmt.Fprintf(&b, `\x%02x`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('\'')
	return b.String()
}

// doubleQuote quotes a path in which no character is special to a shell but the blank.
func doubleQuote(path string) string { return strconv.Quote(path) }
