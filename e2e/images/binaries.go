package images

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Binaries are paths of programs on this machine; one that was not built is empty.
type Binaries struct {
	Idlecount  string
	Executor   string // idlecount-executor
	Entrypoint string
	Helper     string // the stand-in for gitlab-runner-helper
}

// program is one main package of the module.
type program struct {
	pkg  string // below the module's root
	file string // what the file is called
	set  func(*Binaries, string)
	in   Name
}

func programs() []program {
	return []program{
		{".", "idlecount", func(b *Binaries, path string) { b.Idlecount = path }, Idlecount},
		{"./executor-plugin", "idlecount-executor", func(b *Binaries, path string) { b.Executor = path }, Idlecount},
		{"./entrypoint", "entrypoint", func(b *Binaries, path string) { b.Entrypoint = path }, Entrypoint},
		{"./e2e/images/cmd/helper", "gitlab-runner-helper", func(b *Binaries, path string) { b.Helper = path }, Helper},
	}
}

// BuildBinaries builds the programs that the named images hold into dir (all of them where none is named): static,
// stripped, without paths of this machine. It is how tests get the same driver on the host that the image has.
func BuildBinaries(ctx context.Context, dir string, names ...Name) (Binaries, error) {
	root, err := moduleRoot(ctx)
	if err != nil {
		return Binaries{}, err
	}
	var binaries Binaries
	for _, p := range programs() {
		if len(names) > 0 && !slices.Contains(names, p.in) {
			continue
		}
		file := filepath.Join(dir, p.file)
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", file, p.pkg)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return Binaries{}, fmt.Errorf("go build %s: %w\n%s", p.pkg, err, strings.TrimSpace(string(out)))
		}
		p.set(&binaries, file)
	}
	return binaries, nil
}

// buildFor builds what the images need into a folder that cleanUp removes.
func buildFor(ctx context.Context, progress func(string), names []Name) (_ Binaries, cleanUp func(), err error) {
	cleanUp = func() {}
	needed := slices.ContainsFunc(programs(), func(p program) bool { return slices.Contains(names, p.in) })
	if !needed {
		return Binaries{}, cleanUp, nil
	}
	dir, err := os.MkdirTemp("", "idlecount-images-")
	if err != nil {
		return Binaries{}, cleanUp, err
	}
	cleanUp = func() { _ = os.RemoveAll(dir) }
	progress("building binaries")
	binaries, err := BuildBinaries(ctx, dir, names...)
	if err != nil {
		cleanUp()
		return Binaries{}, func() {}, err
	}
	return binaries, cleanUp, nil
}

// moduleRoot is the folder of the go.mod above the working directory, wherever in the module a test runs.
func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w (is the Go toolchain in PATH?)", err)
	}
	file := strings.TrimSpace(string(out))
	if file == "" || file == os.DevNull {
		return "", fmt.Errorf("the images are built from source: run this inside the checkout of idlecount")
	}
	return filepath.Dir(file), nil
}
