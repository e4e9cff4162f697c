package images

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// Files of this machine that images are made of, with the Debian package that has each.
const (
	busyboxFile = "/bin/busybox"
	bashFile    = "/bin/bash-static"
	gitFile     = "/usr/bin/git"
	gitCore     = "/usr/lib/git-core"
	gitShare    = "/usr/share/git-core/templates"
)

// users adds the accounts that the images run as.
func (fs rootfs) users() {
	fs.text("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/home/user:/bin/sh\nnonroot:x:65532:65532:nonroot:/nonexistent:/bin/false\n")
	fs.text("etc/group", "root:x:0:\nuser:x:1000:\nnonroot:x:65532:\n")
}

// busybox adds a small system: a shell and the usual commands at the usual paths.
func busybox(ctx context.Context, fs rootfs) error {
	if err := requireStatic(busyboxFile, "busybox-static"); err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, busyboxFile, "--list-full").Output()
	if err != nil {
		return fmt.Errorf("%s --list-full: %w", busyboxFile, err)
	}
	fs.file("bin/busybox", busyboxFile)
	for applet := range strings.Lines(string(out)) {
		if applet = strings.TrimSpace(applet); applet != "" && applet != "bin/busybox" {
			fs.link(applet, "/bin/busybox")
		}
	}
	if _, ok := fs["usr/bin/env"]; !ok {
		return fmt.Errorf("%s has no env applet, which scripts that begin with #!/usr/bin/env need", busyboxFile)
	}
	fs.users()
	fs.dir("root", 0o700)
	fs.dir("home/user", 0o1777)
	fs.dir("tmp", 0o1777)
	fs.dir("var/tmp", 0o1777)
	return nil
}

// bash adds busybox and bash.
func bash(ctx context.Context, fs rootfs) error {
	if err := requireStatic(bashFile, "bash-static"); err != nil {
		return err
	}
	if err := busybox(ctx, fs); err != nil {
		return err
	}
	fs.file("bin/bash", bashFile)
	return nil
}

// bare adds a shell and nothing else. Debian's static busybox finds its applets without links when it runs as sh.
func bare(fs rootfs) error {
	if err := requireStatic(busyboxFile, "busybox-static"); err != nil {
		return err
	}
	fs.file("bin/sh", busyboxFile)
	return nil
}

// helper adds what GitLab's helper image has, as far as jobs without LFS need it.
func helper(ctx context.Context, fs rootfs, binaries Binaries) error {
	if err := bash(ctx, fs); err != nil {
		return err
	}
	if err := git(ctx, fs); err != nil {
		return err
	}
	fs.file("usr/bin/gitlab-runner-helper", binaries.Helper)
	return nil
}

// git adds Debian's git with what fetching over a path and over HTTP loads and runs. Git's sub-commands are links to it.
func git(ctx context.Context, fs rootfs) error {
	remote := filepath.Join(gitCore, "git-remote-http")
	for _, file := range []string{gitFile, remote} {
		if err := require(file, "git"); err != nil {
			return err
		}
		fs.file(strings.TrimPrefix(file, "/"), file)
		if err := libraries(ctx, fs, file); err != nil {
			return err
		}
	}
	for _, command := range []string{"git-upload-pack", "git-receive-pack", "git-upload-archive"} {
		fs.link("usr/bin/"+command, "git")
	}
	entries, err := os.ReadDir(gitCore)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := filepath.Join(gitCore, e.Name())
		switch target, err := os.Readlink(name); {
		case err == nil && (target == "git" || target == "git-remote-http"):
			fs.link(strings.TrimPrefix(name, "/"), target)
		case strings.HasPrefix(e.Name(), "git-sh-") || e.Name() == "git-submodule":
			fs.file(strings.TrimPrefix(name, "/"), name)
		}
	}
	// The sub-commands' links point here.
	fs.link(strings.TrimPrefix(gitCore, "/")+"/git", gitFile)
	fs.text(strings.TrimPrefix(gitShare, "/")+"/description", "Unnamed repository; edit this file 'description' to name the repository.\n")
	fs.dir(strings.TrimPrefix(gitShare, "/")+"/hooks", 0o755)
	return nil
}

// libraries adds the shared libraries that the loader would load for a program, at their own paths.
func libraries(ctx context.Context, fs rootfs, program string) error {
	out, err := exec.CommandContext(ctx, "ldd", program).Output()
	if err != nil {
		return fmt.Errorf("ldd %s: %w (Debian package libc-bin)", program, err)
	}
	if missing := regexp.MustCompile(`(\S+) => not found`).FindStringSubmatch(string(out)); missing != nil {
		return fmt.Errorf("%s needs the library %s, which this machine doesn't have: reinstall the Debian package git", program, missing[1])
	}
	// "libz.so.1 => /lib/…/libz.so.1 (0x…)", or the loader's own line, which begins with the path.
	line := regexp.MustCompile(`(/\S+) \(0x[0-9a-f]+\)`)
	for _, match := range line.FindAllStringSubmatch(string(out), -1) {
		fs.file(strings.TrimPrefix(match[1], "/"), match[1])
	}
	return nil
}

// require tells which Debian package to install where a file is missing.
func require(file, debianPackage string) error {
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is missing: install the Debian package %s (apt-get install %s)", file, debianPackage, debianPackage)
	} else if err != nil {
		return err
	}
	return nil
}

// requireStatic also refuses a program that needs libraries: Debian's other busybox package lies at the same path.
func requireStatic(file, debianPackage string) error {
	if err := require(file, debianPackage); err != nil {
		return err
	}
	static, err := isStatic(file)
	if err != nil {
		return err
	}
	if !static {
		return fmt.Errorf("%s needs shared libraries: install the Debian package %s (apt-get install %s)", file, debianPackage, debianPackage)
	}
	return nil
}
