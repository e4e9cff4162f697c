package version

import (
	"runtime/debug"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/stretchr/testify/require"
)

func TestVersionOfABuild(t *testing.T) {
	module := func(version string) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Version: version}}
	}
	for when, c := range map[string]struct {
		linked string
		info   *debug.BuildInfo
		want   string
	}{
		"a release build is what the linker was told":      {"1.2.3", module("v9.9.9"), "1.2.3"},
		"a leading v is dropped":                           {"v1.2.3", nil, "1.2.3"},
		"a word that begins with v stays":                  {"vnext", nil, "vnext"},
		"an installed release is its module's version":     {"", module("v1.2.3"), "1.2.3"},
		"an installed release candidate too":               {"", module("v1.2.3-rc.1"), "1.2.3-rc.1"},
		"a build from a checkout has no version":           {"", module("(devel)"), "dev"},
		"a pseudo-version has no image":                    {"", module("v0.0.0-20261129120000-0123456789ab"), "dev"},
		"a dirty checkout of a release is not the release": {"", module("v1.2.3+dirty"), "dev"},
		"a binary without build information is dev":        {"", nil, "dev"},
	} {
		t.Run(when, func(t *testing.T) {
			require.Equal(t, c.want, choose(c.linked, c.info))
		})
	}
}

func TestTagIsAValidTagOfAnImage(t *testing.T) {
	for _, version := range []string{"dev", "1.2.3", "1.2.3+build.5", "1.2.3 with spaces", strings.Repeat("1", 200), String()} {
		_, err := name.ParseReference("example.com/entrypoint:" + tag(version))
		require.NoError(t, err, version)
	}
	require.Equal(t, "1.2.3-build.5", tag("1.2.3+build.5"))
}
