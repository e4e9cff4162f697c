package build

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRequiredVersion(t *testing.T) {
	const mod = `module x

require k8s.io/kubernetes v1.37.2

require (
	go.etcd.io/etcd/server/v3 v3.6.16 // indirect
	k8s.io/kubernetes-extras v9.9.9
)
`
	for path, want := range map[string]string{"k8s.io/kubernetes": "v1.37.2", "go.etcd.io/etcd/server/v3": "v3.6.16"} {
		got, err := requiredVersion([]byte(mod), path)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err := requiredVersion([]byte(mod), "k8s.io/api")
	require.ErrorContains(t, err, "k8s.io/api")
}

func TestLdflagsSetTheVersion(t *testing.T) {
	require.Equal(t, "-s -w -X v.git=v1.37.2 -X v.major=1 -X v.minor=37", ldflags("v1.37.2", []string{"v.git", "v.major", "v.minor"}))
	require.Equal(t, "-s -w", ldflags("v1.37.2", nil))
}

func checkout(t *testing.T) Tree {
	t.Helper()
	working, err := os.Getwd()
	require.NoError(t, err)
	tree, err := FindTree(working)
	require.NoError(t, err)
	return tree
}

func TestEachProgramIsAToolOfItsModule(t *testing.T) {
	tree := checkout(t)
	for _, m := range Modules() {
		t.Run(m.Name, func(t *testing.T) {
			cmd := exec.Command("go", "mod", "edit", "-json")
			cmd.Dir = tree.module(m)
			out, err := cmd.Output()
			require.NoError(t, err)
			for _, p := range m.Programs {
				require.Contains(t, string(out), `"Path": "`+p.Package+`"`, "`go mod tidy` would drop what it needs")
			}
			recipe, err := tree.Recipe(m)
			require.NoError(t, err)
			require.Regexp(t, `^v\d+\.\d+\.\d+$`, recipe.Version)
		})
	}
}

func TestFindTreeOutsideOfACheckoutSaysWhatToDo(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "go.mod"), []byte("module example.com/other\n"), 0o644))
	_, err := FindTree(folder)
	require.ErrorContains(t, err, "run this from within")
}

// fakeTree is a checkout with one nested module that needs nothing from the network.
func fakeTree(t *testing.T) (Tree, Module) {
	t.Helper()
	root := t.TempDir()
	m := Module{
		Name:             "greeter",
		Versioned:        "example.com/greeter",
		VersionVariables: []string{"main.version"},
		Programs:         []Program{{"hello", "example.com/nested/hello", time.Second}},
	}
	tree := Tree{root: root}
	write(t, filepath.Join(root, "go.mod"), "module idlecount.dev/idlecount\n")
	write(t, filepath.Join(tree.module(m), "go.mod"), "module example.com/nested\n\ngo 1.26\n\n// example.com/greeter v1.2.3\n")
	write(t, filepath.Join(tree.module(m), "go.sum"), "")
	write(t, filepath.Join(tree.module(m), "hello", "main.go"), "package main\n\nvar version string\n\nfunc main() { println(version) }\n")
	return tree, m
}

func write(t *testing.T, path, content string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
}

// recipe fakes the version, since requiring a module would need the network.
func recipe(t *testing.T, tree Tree, m Module) Recipe {
	t.Helper()
	mod := filepath.Join(tree.module(m), "go.mod")
	original, err := os.ReadFile(mod)
	require.NoError(t, err)
	write(t, mod, string(original)+"require example.com/greeter v1.2.3\n")
	r, err := tree.Recipe(m)
	require.NoError(t, err)
	write(t, mod, string(original))
	return r
}

func TestBuildMakesWhatIsMissingOnceAndSaysSo(t *testing.T) {
	tree, m := fakeTree(t)
	r, programs := recipe(t, tree, m), t.TempDir()
	require.Len(t, r.Missing(programs), 1)

	var progress bytes.Buffer
	require.NoError(t, Build(t.Context(), []Recipe{r}, programs, &progress))
	require.Contains(t, progress.String(), "building hello v1.2.3 (1 of 1)")
	require.Empty(t, r.Missing(programs))
	out, err := exec.Command(filepath.Join(r.Folder(programs), "hello")).CombinedOutput()
	require.NoError(t, err)
	require.Equal(t, "v1.2.3\n", string(out))

	progress.Reset()
	require.NoError(t, Build(t.Context(), []Recipe{r}, programs, &progress))
	require.Empty(t, progress.String())
}

func TestABuildThatFailsSaysWhyAndLeavesNoProgram(t *testing.T) {
	tree, m := fakeTree(t)
	write(t, filepath.Join(tree.module(m), "hello", "main.go"), "package main\n\nfunc main() { undefined() }\n")
	r, programs := recipe(t, tree, m), t.TempDir()
	err := Build(t.Context(), []Recipe{r}, programs, &bytes.Buffer{})
	require.ErrorContains(t, err, "undefined: undefined")
	require.Len(t, r.Missing(programs), 1)
}

func TestTheKeyFollowsVersionsAndFlagsAndNothingElse(t *testing.T) {
	tree, m := fakeTree(t)
	first := recipe(t, tree, m)
	require.Equal(t, first.Key, recipe(t, tree, m).Key)

	elsewhere, _ := fakeTree(t)
	require.Equal(t, first.Key, recipe(t, elsewhere, m).Key, "a second checkout must find the programs of the first")

	otherFlags := m
	otherFlags.VersionVariables = []string{"main.other"}
	require.NotEqual(t, first.Key, recipe(t, tree, otherFlags).Key)

	write(t, filepath.Join(tree.module(m), "go.sum"), "example.com/greeter v1.2.3 h1:abc=\n")
	require.NotEqual(t, first.Key, recipe(t, tree, m).Key)
}

func TestOwnProgramsAreKeyedByTheirSources(t *testing.T) {
	tree, _ := fakeTree(t)
	write(t, filepath.Join(tree.root, "tools", "waiter", "main.go"), "package main\n\nfunc main() {}\n")
	programs := t.TempDir()
	first, err := tree.Own("tools/waiter", programs)
	require.NoError(t, err)
	require.NoError(t, tree.BuildOwn(t.Context(), "tools/waiter", first))
	require.FileExists(t, first)

	write(t, filepath.Join(tree.root, "tools", "waiter", "main_test.go"), "package main\n")
	same, err := tree.Own("tools/waiter", programs)
	require.NoError(t, err)
	require.Equal(t, first, same, "a test is no reason to replace a program")

	write(t, filepath.Join(tree.root, "tools", "waiter", "main.go"), "package main\n\nfunc main() { println() }\n")
	second, err := tree.Own("tools/waiter", programs)
	require.NoError(t, err)
	require.NotEqual(t, first, second)
}

func TestReportEveryStops(t *testing.T) {
	reports := make(chan struct{}, 1000)
	stop := reportEvery(time.Millisecond, func() {
		select {
		case reports <- struct{}{}:
		default:
		}
	})
	<-reports
	stop()
	for len(reports) > 0 {
		<-reports
	}
	require.Empty(t, reports, "no report may come after stop has returned")
}

func TestLastLines(t *testing.T) {
	require.Equal(t, "b\nc", lastLines("a\nb\nc\n", 2))
	require.Equal(t, "a", lastLines("a", 2))
}

func TestProgramNamesAreUnique(t *testing.T) {
	var names []string
	for _, m := range Modules() {
		for _, p := range m.Programs {
			require.False(t, slices.Contains(names, p.Name), "two programs are called %s", p.Name)
			require.False(t, strings.ContainsRune(p.Name, '/'))
			names = append(names, p.Name)
		}
	}
}
