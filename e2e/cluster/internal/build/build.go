// Package build makes the programs of the local cluster from their Go modules, once per version.
//
// It owns where a program of a version lies: a folder named by a hash of the module's go.mod and go.sum and of the
// flags, so that every checkout with the same versions on a machine shares them. It refuses to leave a half-written
// program under its final name.
package build

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"
)

// Module is a nested Go module of the repository that exists for the programs it names in its tool lines.
type Module struct {
	// Name is the module's folder below e2e/cluster/binaries.
	Name string
	// Versioned is the required module whose version the programs carry and, for -ldflags, print.
	Versioned string
	// VersionVariables are the string variables set to (version, major, minor); none if empty.
	VersionVariables []string
	Programs         []Program
}

// Program is one package main of a module.
type Program struct {
	Name    string
	Package string
	// Expect is about how long a first build takes on two cores, for the user who waits.
	Expect time.Duration
}

// Modules returns what the local cluster consists of.
func Modules() []Module {
	const component = "k8s.io/component-base/version."
	return []Module{
		{
			Name:             "kubernetes",
			Versioned:        "k8s.io/kubernetes",
			VersionVariables: []string{component + "gitVersion", component + "gitMajor", component + "gitMinor"},
			Programs: []Program{
				{"kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver", 5 * time.Minute},
				{"kubelet", "k8s.io/kubernetes/cmd/kubelet", 2 * time.Minute},
				{"kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager", time.Minute},
				{"kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler", 30 * time.Second},
			},
		},
		{
			Name:      "etcd",
			Versioned: "go.etcd.io/etcd/server/v3",
			Programs:  []Program{{"etcd", "go.etcd.io/etcd/server/v3", time.Minute}},
		},
		{
			Name:      "containerd",
			Versioned: "github.com/containerd/containerd/v2",
			Programs: []Program{
				{"containerd", "github.com/containerd/containerd/v2/cmd/containerd", time.Minute},
				{"containerd-shim-runc-v2", "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2", 15 * time.Second},
				{"ctr", "github.com/containerd/containerd/v2/cmd/ctr", 15 * time.Second},
			},
		},
		{
			Name:      "kwok",
			Versioned: "sigs.k8s.io/kwok",
			Programs:  []Program{{"kwok", "sigs.k8s.io/kwok/cmd/kwok", time.Minute}},
		},
	}
}

// Tree is a checkout of the repository.
type Tree struct{ root string }

// FindTree looks for the checkout that folder lies in.
func FindTree(folder string) (Tree, error) {
	for dir := folder; ; dir = filepath.Dir(dir) {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && regexp.MustCompile(`(?m)^module idlecount\.dev/idlecount$`).Match(mod) {
			return Tree{root: dir}, nil
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return Tree{}, err
		}
		if dir == filepath.Dir(dir) {
			return Tree{}, fmt.Errorf("%s is not in a checkout of idlecount, which says what the local cluster is made of: run this from within one", folder)
		}
	}
}

func (t Tree) module(m Module) string {
	return filepath.Join(t.root, "e2e", "cluster", "binaries", m.Name)
}

// Recipe is a module with everything that decides the bytes of its programs.
type Recipe struct {
	Module
	// Version of the module that is Versioned, for example v1.37.2.
	Version string
	// Key names these versions and flags. The Go version is left out on purpose: a patch release of Go must not cost
	// a quarter of an hour.
	Key     string
	source  string
	ldflags string
}

// Recipe reads the module's files.
func (t Tree) Recipe(m Module) (Recipe, error) {
	mod, err := os.ReadFile(filepath.Join(t.module(m), "go.mod"))
	if err != nil {
		return Recipe{}, err
	}
	sum, err := os.ReadFile(filepath.Join(t.module(m), "go.sum"))
	if err != nil {
		return Recipe{}, err
	}
	version, err := requiredVersion(mod, m.Versioned)
	if err != nil {
		return Recipe{}, fmt.Errorf("%s: %w", filepath.Join(t.module(m), "go.mod"), err)
	}
	r := Recipe{Module: m, Version: version, source: t.module(m), ldflags: ldflags(version, m.VersionVariables)}
	hash := sha256.New()
	for _, part := range [][]byte{mod, sum, []byte(strings.Join(r.arguments("", ""), " ")), []byte(runtime.GOARCH)} {
		fmt.Fprintf(hash, "%d:", len(part)) // so that no two lists of parts read the same
		hash.Write(part)
	}
	r.Key = hex.EncodeToString(hash.Sum(nil))[:12]
	return r, nil
}

// requiredVersion finds the version of a module in the text of a go.mod.
func requiredVersion(mod []byte, path string) (string, error) {
	found := regexp.MustCompile(`(?m)^\s*(?:require\s+)?` + regexp.QuoteMeta(path) + `\s+(v\S+)`).FindSubmatch(mod)
	if found == nil {
		return "", fmt.Errorf("requires no version of %s", path)
	}
	return string(found[1]), nil
}

func ldflags(version string, variables []string) string {
	flags := []string{"-s", "-w"}
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	values := append([]string{version}, parts...)
	for i, variable := range variables {
		flags = append(flags, "-X", variable+"="+values[i])
	}
	return strings.Join(flags, " ")
}

func (r Recipe) arguments(output, pkg string) []string {
	return []string{"build", "-trimpath", "-buildvcs=false", "-ldflags", r.ldflags, "-o", output, pkg}
}

// Folder is where the programs of the recipe lie below a folder for programs.
func (r Recipe) Folder(programs string) string {
	return filepath.Join(programs, r.Name+"-"+r.Version+"-"+r.Key)
}

// Missing returns the programs that have not been built yet.
func (r Recipe) Missing(programs string) []Program {
	var missing []Program
	for _, p := range r.Programs {
		if _, err := os.Stat(filepath.Join(r.Folder(programs), p.Name)); err != nil {
			missing = append(missing, p)
		}
	}
	return missing
}

// Build makes all programs that are missing and says on progress what takes how long.
func Build(ctx context.Context, recipes []Recipe, programs string, progress io.Writer) error {
	var total int
	for _, r := range recipes {
		total += len(r.Missing(programs))
	}
	done := 0
	for _, r := range recipes {
		for _, p := range r.Missing(programs) {
			done++
			label := fmt.Sprintf("%s %s (%d of %d)", p.Name, r.Version, done, total)
			fmt.Fprintf(progress, "building %s, the first time this takes about %s…\n", label, p.Expect)
			if err := r.build(ctx, p, programs, label, progress); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r Recipe) build(ctx context.Context, p Program, programs, label string, progress io.Writer) error {
	if err := os.MkdirAll(r.Folder(programs), 0o755); err != nil {
		return err
	}
	target := filepath.Join(r.Folder(programs), p.Name)
	partial := target + ".partial"
	start := time.Now()
	stop := reportEvery(time.Minute, func() {
		fmt.Fprintf(progress, "  still building %s (%s so far)\n", p.Name, time.Since(start).Round(time.Second))
	})
	err := goTool(ctx, r.source, r.arguments(partial, p.Package)...)
	stop()
	if err != nil {
		return fmt.Errorf("build %s: %w", label, err)
	}
	fmt.Fprintf(progress, "  built %s in %s\n", p.Name, time.Since(start).Round(time.Second))
	return os.Rename(partial, target)
}

// Own returns where a package main of this repository lies once it is built: a path that its sources decide. folder
// is relative to the root of the repository.
func (t Tree) Own(folder, programs string) (string, error) {
	hash := sha256.New()
	sources, err := filepath.Glob(filepath.Join(t.root, folder, "*.go"))
	if err != nil {
		return "", err
	}
	for _, source := range sources {
		if strings.HasSuffix(source, "_test.go") {
			continue
		}
		content, err := os.ReadFile(source)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(hash, "%s %d:%s", filepath.Base(source), len(content), content)
	}
	name := filepath.Base(folder)
	return filepath.Join(programs, name+"-"+hex.EncodeToString(hash.Sum(nil))[:12], name), nil
}

// BuildOwn builds a package main of this repository unless it is there.
func (t Tree) BuildOwn(ctx context.Context, folder, target string) error {
	if _, err := os.Stat(target); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	partial := target + ".partial"
	if err := goTool(ctx, t.root, "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", partial, "./"+folder); err != nil {
		return fmt.Errorf("build %s: %w", folder, err)
	}
	return os.Rename(partial, target)
}

// SourceFolder returns the folder of the recipe's Versioned module in Go's module cache, downloading it if need be.
func (r Recipe) SourceFolder(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", r.Versioned)
	cmd.Dir = r.source
	cmd.Env = environment()
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("find the source of %s: %w", r.Versioned, err)
	}
	return strings.TrimSpace(string(out)), nil
}

func goTool(ctx context.Context, folder string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = folder
	cmd.Env = environment()
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	err := cmd.Run()
	if errors.Is(err, exec.ErrNotFound) {
		return errors.New("the go command is not in PATH: install Go (https://go.dev/dl/)")
	}
	if err != nil {
		return fmt.Errorf("go %s in %s: %w\n%s", strings.Join(args, " "), folder, err, lastLines(output.String(), 20))
	}
	return nil
}

// environment turns off what would change the programs from outside: they are shared by their key.
func environment() []string {
	return append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off", "GOOS=linux", "GOARCH="+runtime.GOARCH)
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

func reportEvery(interval time.Duration, report func()) (stop func()) {
	ticker := time.NewTicker(interval)
	done := make(chan struct{})
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		for {
			select {
			case <-ticker.C:
				report()
			case <-done:
				return
			}
		}
	}()
	return func() {
		ticker.Stop()
		close(done)
		<-finished
	}
}
