//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/entrypoint/wire"
)

// image says what is in a container's root.
type image struct {
	shell    string   // file of the host that becomes /bin/sh; "" is busybox, "none" no shell at all
	bash     bool     // bash-static as /bin/bash
	files    []string // empty programs
	user     int
	readOnly bool
	env      []string
}

// needRoot skips where containers can't be made.
func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("containers need root: namespaces, chroot and mounts")
	}
}

// containers makes a pod whose containers have namespaces and roots of their own, as a runtime makes them.
type containers struct {
	*pod
	images map[wire.Role]image
	roots  map[wire.Role]string
	firsts map[wire.Role]*first
}

func newContainers(t testing.TB, images map[wire.Role]image) *containers {
	t.Helper()
	needRoot(t)
	c := &containers{pod: newPod(t), images: images, roots: map[wire.Role]string{}, firsts: map[wire.Role]*first{}}
	install := exec.Command(theBinary(t), wire.CommandInstall, "--dir", c.dir)
	install.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
	require.NoError(t, os.Chmod(filepath.Dir(theBinary(t)), 0o755))
	out, err := install.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for role, img := range images {
		c.roots[role] = makeRoot(t, img)
	}
	c.enter = func(role wire.Role) []string {
		argv := []string{"nsenter", "--target", strconv.Itoa(c.firsts[role].cmd.Process.Pid), "--pid", "--mount", "--root", "--wd"}
		if user := c.images[role].user; user != 0 {
			argv = append(argv, "--setuid", strconv.Itoa(user), "--setgid", strconv.Itoa(user))
		}
		return argv
	}
	return c
}

// makeRoot makes the root of a container from files of this machine.
func makeRoot(t testing.TB, img image) string {
	t.Helper()
	root := t.TempDir()
	require.NoError(t, os.Chmod(root, 0o755))
	for _, dir := range []string{"bin", "proc", "dev", "work", "idlecount"} {
		require.NoError(t, os.Mkdir(filepath.Join(root, dir), 0o755))
	}
	for _, file := range append([]string{"dev/null", "dev/termination-log"}, img.files...) {
		path := filepath.Join(root, file)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\necho $0 \"$@\"\n"), 0o777))
		require.NoError(t, os.Chmod(path, 0o777))
	}
	if img.shell == "none" {
		return root
	}
	copyProgram(t, root, "/bin/busybox", "bin/busybox")
	list, err := exec.Command("/bin/busybox", "--list").Output()
	require.NoError(t, err)
	for name := range strings.FieldsSeq(string(list)) {
		if name != "busybox" && name != "bash" && (name != "sh" || img.shell == "") {
			require.NoError(t, os.Symlink("busybox", filepath.Join(root, "bin", name)))
		}
	}
	if img.shell != "" {
		copyProgram(t, root, img.shell, "bin/sh")
	}
	if img.bash {
		copyProgram(t, root, "/bin/bash-static", "bin/bash")
	}
	return root
}

// copyProgram copies a program and the libraries that it names.
func copyProgram(t testing.TB, root, from, to string) {
	t.Helper()
	if _, err := os.Stat(from); err != nil {
		t.Skipf("%s is not on this machine", from)
	}
	copyFile(t, from, filepath.Join(root, to))
	libraries, err := exec.Command("ldd", from).Output()
	if err != nil {
		return // static
	}
	for _, path := range regexp.MustCompile(`/\S+`).FindAllString(string(libraries), -1) {
		copyFile(t, path, filepath.Join(root, path))
	}
}

func copyFile(t testing.TB, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Dir(to), 0o755))
	require.NoError(t, os.WriteFile(to, content, 0o755))
}

// boot starts the PID 1 of a container. The process is in a new PID namespace, and its number one.
func (c *containers) boot(t testing.TB, role wire.Role, env ...string) *first {
	t.Helper()
	img, root := c.images[role], c.roots[role]
	seal := ""
	if img.readOnly {
		// The kubelet mounts its file for the termination message, which stays writable.
		seal = `mount --bind $R/dev/termination-log $R/dev/termination-log; mount -o remount,ro,bind $R`
	}
	script := fmt.Sprintf(`set -e; R=%s
mount --make-rprivate /
mount --bind $R $R
mount -t proc proc $R/proc
mount --bind /dev/null $R/dev/null
mount --bind %s $R/idlecount
%s
exec /usr/sbin/chroot --userspec=%[4]d:%[4]d $R %[5]s serve`, root, c.dir, seal, img.user, wire.Binary)
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.Env = append(append([]string{wire.EnvRole + "=" + string(role), wire.EnvIdleTime + "=0s"}, img.env...), env...)
	if len(img.env) == 0 {
		cmd.Env = append(cmd.Env, "PATH=/usr/local/bin:/usr/bin:/bin")
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
	f := startFirst(t, cmd)
	c.firsts[role] = f
	eventually(t, func() bool { return strings.Contains(f.log.String(), "msg=started") || !f.running() })
	require.Contains(t, f.log.String(), "msg=started")
	return f
}

// bootPod starts both containers and claims the pod.
func bootPod(t testing.TB, images map[wire.Role]image, env ...string) *containers {
	t.Helper()
	c := newContainers(t, images)
	for role := range images {
		c.boot(t, role, env...)
	}
	for role := range images {
		_, code := c.claim(t, role, "1")
		require.Equal(t, wire.ExitOK, code)
	}
	return c
}

// inside is any command in a container, like kubectl exec.
func (c *containers) inside(t testing.TB, role wire.Role, argv ...string) *exec.Cmd {
	t.Helper()
	argv = append(c.enter(role), argv...)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin"}
	return cmd
}
