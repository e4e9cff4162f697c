package factory

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func TestReferencesInParts(t *testing.T) {
	digest := "sha256:" + strings.Repeat("a", 64)
	for image, want := range map[string]reference{
		"alpine":                      {"alpine", "", ""},
		"alpine:3.22":                 {"alpine", "3.22", ""},
		"library/alpine":              {"library/alpine", "", ""},
		"registry:5000/alpine":        {"registry:5000/alpine", "", ""},
		"registry:5000/a/b:1":         {"registry:5000/a/b", "1", ""},
		"alpine@" + digest:            {"alpine", "", digest},
		"registry:5000/a:1@" + digest: {"registry:5000/a", "1", digest},
		"":                            {},
	} {
		require.Equal(t, want, parseReference(image), image)
	}
}

func TestPullPolicy(t *testing.T) {
	const always, ifNotPresent, never = corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever
	for name, c := range map[string]struct {
		image  string
		runner []corev1.PullPolicy
		job    []string
		want   corev1.PullPolicy
	}{
		"nothing said, a tag":                          {"a:1", nil, nil, ifNotPresent},
		"nothing said, no tag":                         {"a", nil, nil, always},
		"nothing said, latest":                         {"a:latest", nil, nil, always},
		"nothing said, a digest":                       {"a@sha256:0", nil, nil, ifNotPresent},
		"nothing said, latest with a digest":           {"a:latest@sha256:0", nil, nil, always},
		"the runner's first":                           {"a", []corev1.PullPolicy{never, always}, nil, never},
		"the job's, which the runner lists":            {"a", []corev1.PullPolicy{never, always}, []string{"always"}, always},
		"the first of the job's that the runner lists": {"a", []corev1.PullPolicy{never, always}, []string{"if-not-present", "always", "never"}, always},
		"more pulling than the default":                {"a:1", nil, []string{"always"}, always},
		"not less pulling than the default":            {"a", nil, []string{"never", "if-not-present"}, ""},
		"not what the runner doesn't list":             {"a", []corev1.PullPolicy{ifNotPresent}, []string{"always"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := pullPolicy(c.image, c.runner, c.job)
			require.Equal(t, c.want, got)
			require.Equal(t, c.want == "", err != nil)
		})
	}
}
