//go:build linux

package script

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"idlecount.dev/idlecount/entrypoint/wire"
)

// usualPath is where programs are where the environment names no PATH. The last entry is that of images without a
// distribution.
const usualPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/busybox"

// FindShell returns the shell that scripts get: bash if the container has one, else sh.
func FindShell(env []string) (string, error) {
	for _, name := range []string{"bash", "sh"} {
		if path := LookPath(env, name); path != "" {
			return path, nil
		}
	}
	return "", fmt.Errorf("there is no shell in this container: neither bash nor sh is in PATH (%s) or in %s; "+
		"use an image that has one", variable(env, "PATH"), usualPath)
}

// LookPath finds a program in the PATH of an environment, then in the usual places; empty where there is none.
func LookPath(env []string, name string) string {
	for dir := range strings.SplitSeq(variable(env, "PATH")+":"+usualPath, ":") {
		path := filepath.Join(dir, name)
		if !filepath.IsAbs(path) {
			continue // the working folder of a job is no place to look in
		}
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && unix.Access(path, unix.X_OK) == nil {
			return path
		}
	}
	return ""
}

// Environment is that of PID 1 without its own settings, and with more folders at the end of PATH.
func Environment(env []string, folders ...string) []string {
	var out []string
	for _, entry := range env {
		if !strings.HasPrefix(entry, wire.EnvPrefix) && (len(folders) == 0 || !strings.HasPrefix(entry, "PATH=")) {
			out = append(out, entry)
		}
	}
	if len(folders) == 0 {
		return out
	}
	path := variable(env, "PATH")
	if path == "" {
		path = usualPath
	}
	return append(out, "PATH="+strings.Join(append([]string{path}, folders...), ":"))
}

// variable is the value of the last entry of that name, as a process started with env would see it.
func variable(env []string, name string) string {
	value := ""
	for _, entry := range env {
		if v, ok := strings.CutPrefix(entry, name+"="); ok {
			value = v
		}
	}
	return value
}
