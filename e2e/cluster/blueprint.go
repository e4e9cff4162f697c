package cluster

import (
	"context"
	"io"
	"os"
	"os/exec"

	"idlecount.dev/idlecount/e2e/cluster/internal/build"
	"idlecount.dev/idlecount/e2e/cluster/internal/host"
)

// blueprint is everything that decides what the cluster is: the programs, their arguments and their files.
type blueprint struct {
	layout      layout
	tree        build.Tree
	recipes     []build.Recipe
	pause       string
	registry    string
	definitions map[Component]definition
	files       map[string][]byte
	fingerprint string
}

// newBlueprint reads the checkout around the working directory, and builds and installs what is missing.
func newBlueprint(ctx context.Context, l layout, progress io.Writer) (*blueprint, error) {
	working, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	b := &blueprint{layout: l}
	if b.tree, err = build.FindTree(working); err != nil {
		return nil, err
	}
	for _, module := range build.Modules() {
		recipe, err := b.tree.Recipe(module)
		if err != nil {
			return nil, err
		}
		b.recipes = append(b.recipes, recipe)
	}
	if err := host.Install(ctx, requirements(), progress); err != nil {
		return nil, err
	}
	if err := b.build(ctx, progress); err != nil {
		return nil, err
	}
	tools, err := findTools()
	if err != nil {
		return nil, err
	}
	if b.files, err = configFiles(l, tools); err != nil {
		return nil, err
	}
	for _, recipe := range b.recipes {
		if recipe.Name == "kwok" {
			if b.files[l.config("kwok.yaml")], err = readStages(ctx, recipe, l.programs()); err != nil {
				return nil, err
			}
		}
	}
	programs := locate(b.recipes, l.programs())
	programs["registry"] = b.registry
	b.definitions = define(l, programs)
	// A laptop in another network has other name servers, which is no reason to lose the cluster.
	tools.resolver = resolver{}
	stable, err := configFiles(l, tools)
	if err != nil {
		return nil, err
	}
	b.fingerprint, err = fingerprint(b.definitions, stable)
	return b, err
}

const (
	pauseSource    = "e2e/cluster/pause"
	registrySource = "e2e/cluster/registry"
)

func (b *blueprint) build(ctx context.Context, progress io.Writer) error {
	if err := build.Build(ctx, b.recipes, b.layout.programs(), progress); err != nil {
		return err
	}
	for source, target := range map[string]*string{pauseSource: &b.pause, registrySource: &b.registry} {
		path, err := b.tree.Own(source, b.layout.programs())
		if err != nil {
			return err
		}
		if err := b.tree.BuildOwn(ctx, source, path); err != nil {
			return err
		}
		*target = path
	}
	return nil
}

// requirements are what the cluster needs of Debian.
func requirements() []host.Requirement {
	return []host.Requirement{
		{Any: []string{"runc"}, Package: "runc"},
		{Any: cniFolders("bridge"), Package: "containernetworking-plugins"},
		{Any: []string{"iptables"}, Package: "iptables"},
		{Any: []string{"ip"}, Package: "iproute2"},
	}
}

// cniFolders are where CNI plugins are installed: by Debian, and by everybody else.
func cniFolders(file string) []string {
	return []string{"/usr/lib/cni/" + file, "/opt/cni/bin/" + file}
}

func findTools() (tools, error) {
	runc, err := exec.LookPath("runc")
	if err != nil {
		return tools{}, err
	}
	t := tools{runc: runc, resolver: hostResolver()}
	for _, folder := range cniFolders("") {
		if _, err := os.Stat(folder + "bridge"); err == nil {
			t.cniPlugins = folder
			break
		}
	}
	return t, nil
}
