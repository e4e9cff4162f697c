package factory

import (
	"errors"
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

// TestTheEntrypointIsPulledAsAllowed: it is no image of a job's, and still one that the node pulls.
func TestTheEntrypointIsPulledAsAllowed(t *testing.T) {
	r := load(t, "minimal")
	r.Kubernetes.PullPolicy, r.Kubernetes.AllowedPullPolicies = []string{"always", "never"}, []string{"never"}
	s := shapeOf(t, r, Job{})
	require.Equal(t, corev1.PullNever, s.PullPolicy)
	require.Equal(t, corev1.PullNever, initContainer(r, s).ImagePullPolicy)
}

func TestPullPolicy(t *testing.T) {
	const always, ifNotPresent, never = corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever
	for name, c := range map[string]struct {
		image  string
		runner []corev1.PullPolicy
		job    []string
		want   corev1.PullPolicy

		allowed []corev1.PullPolicy
	}{
		"nothing said, a tag":                               {image: "a:1", runner: nil, job: nil, want: ifNotPresent},
		"nothing said, no tag":                              {image: "a", runner: nil, job: nil, want: always},
		"nothing said, latest":                              {image: "a:latest", runner: nil, job: nil, want: always},
		"nothing said, a digest":                            {image: "a@sha256:0", runner: nil, job: nil, want: ifNotPresent},
		"nothing said, latest with a digest":                {image: "a:latest@sha256:0", runner: nil, job: nil, want: always},
		"the runner's first":                                {image: "a", runner: []corev1.PullPolicy{never, always}, job: nil, want: never},
		"the job's, which the runner lists":                 {image: "a", runner: []corev1.PullPolicy{never, always}, job: []string{"always"}, want: always},
		"the first of the job's that the runner lists":      {image: "a", runner: []corev1.PullPolicy{never, always}, job: []string{"if-not-present", "always", "never"}, want: always},
		"more pulling than the default":                     {image: "a:1", runner: nil, job: []string{"always"}, want: always},
		"not less pulling than the default":                 {image: "a", runner: nil, job: []string{"never", "if-not-present"}, want: ""},
		"the first of the job's that is allowed":            {image: "a", job: []string{"never", "always"}, allowed: []corev1.PullPolicy{ifNotPresent, always}, want: always},
		"what is allowed and the runner doesn't list":       {image: "a", runner: []corev1.PullPolicy{always}, job: []string{"never"}, allowed: []corev1.PullPolicy{never}, want: never},
		"not what the runner lists and isn't allowed":       {image: "a", runner: []corev1.PullPolicy{always}, job: []string{"always"}, allowed: []corev1.PullPolicy{never}, want: ""},
		"the first of the runner's that is allowed":         {image: "a", runner: []corev1.PullPolicy{always, never}, allowed: []corev1.PullPolicy{never}, want: never},
		"nothing of the runner's is allowed":                {image: "a", runner: []corev1.PullPolicy{always}, allowed: []corev1.PullPolicy{never}, want: ""},
		"nothing said, and the default is allowed":          {image: "a:1", allowed: []corev1.PullPolicy{always, ifNotPresent}, want: ifNotPresent},
		"nothing said, and the default isn't allowed":       {image: "a:1", allowed: []corev1.PullPolicy{always}, want: always},
		"less pulling than the default where it is allowed": {image: "a", job: []string{"never"}, allowed: []corev1.PullPolicy{never}, want: never},
		"not what the runner doesn't list":                  {image: "a", runner: []corev1.PullPolicy{ifNotPresent}, job: []string{"always"}, want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := pulling{"table", c.runner, c.allowed}.policy(c.image, c.job)
			require.Equal(t, c.want, got)
			require.Equal(t, c.want == "", err != nil)
			_, blamed := errors.AsType[*JobError](err)
			require.Equal(t, err != nil && len(c.job) > 0, blamed, "who asked for what isn't allowed is to blame")
		})
	}
}
