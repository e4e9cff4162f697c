package factory

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTheDocumentationHasEveryKey compares the tables of docs/pod.md with the constants and with real pods.
func TestTheDocumentationHasEveryKey(t *testing.T) {
	text, err := os.ReadFile("../docs/pod.md")
	require.NoError(t, err)
	row := regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (label|annotation|data) \\| .* \\| ([a-z, ]+) \\|$")
	documented := map[string]string{} // "label key" -> when it is set
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		documented[m[2]+" "+m[1]] = m[3]
	}

	keys := constants(t)
	require.Greater(t, len(keys), 25)
	require.Equal(t, slices.Sorted(maps.Keys(keys)), slices.Sorted(maps.Keys(documented)))

	r := load(t, "full")
	delete(r.Kubernetes.PodAnnotations, "job.runner.gitlab.com/url")
	job := testMeta()
	job.RootNamespaceID = "9"
	pod := IdlePod(r, shapeOf(t, r, Job{}), "pod", 0, testAnchor)
	claim := ClaimMetadata(r, job, Warm)
	set := map[string][]string{}
	for when, m := range map[string]Metadata{"birth": {pod.Labels, pod.Annotations}, "claim": claim} {
		for key := range m.Labels {
			set["label "+key] = append(set["label "+key], when)
		}
		for key := range m.Annotations {
			set["annotation "+key] = append(set["annotation "+key], when)
		}
	}
	for key, when := range documented {
		if strings.HasPrefix(when, "by ") {
			require.NotContains(t, set, key)
			continue
		}
		require.ElementsMatch(t, strings.Split(when, ", "), set[key], key)
	}
}

// constants are the keys in this package's source, as "label key", "annotation key", "data key".
func constants(t *testing.T) map[string]bool {
	t.Helper()
	kinds := map[string]string{"Label": "label ", "Annotation": "annotation ", "AnchorStatusKey": "data "}
	keys := map[string]bool{}
	for _, name := range []string{"labels.go", "claim.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			for prefix, kind := range kinds {
				if strings.HasPrefix(spec.Names[0].Name, prefix) && len(spec.Values) == 1 {
					keys[kind+constant(t, spec.Values[0])] = true
				}
			}
			return true
		})
	}
	return keys
}

// constant is the value of a string constant, or of Prefix plus one.
func constant(t *testing.T, e ast.Expr) string {
	t.Helper()
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		require.NoError(t, err)
		return text
	case *ast.BinaryExpr:
		return Prefix + constant(t, e.Y)
	}
	t.Fatalf("%T is no key", e)
	return ""
}
