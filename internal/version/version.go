// Package version says which release of idlecount this is. It knows nothing but what the build put into the binary.
package version

import (
	"fmt"
	"regexp"
	"runtime"
	"runtime/debug"
)

// linked is set by a release build: -ldflags "-X idlecount.dev/idlecount/internal/version.linked=1.2.3". Nothing else
// writes it.
var linked string //nolint:gochecknoglobals // the linker can only set a variable

// Development is the version of a build that no one has named.
const Development = "dev"

// String is the version without a leading v: of the release build, else of the module where it was installed with
// `go install …@v1.2.3`, else "dev".
func String() string {
	info, _ := debug.ReadBuildInfo()
	return choose(linked, info)
}

// Tag is the version as the tag of our images.
func Tag() string { return tag(String()) }

// Line is what a program says about itself: its version, that of the protocol between driver and entrypoint, and how it
// was built.
func Line(program string, protocol int) string {
	commit := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				commit = ", commit " + s.Value[:min(12, len(s.Value))]
			}
		}
	}
	return fmt.Sprintf("%s %s (protocol %d, %s, %s/%s%s)", program, String(), protocol, runtime.Version(), runtime.GOOS, runtime.GOARCH, commit)
}

func choose(linked string, info *debug.BuildInfo) string {
	if linked != "" {
		return trimV(linked)
	}
	// A build from a checkout has a pseudo-version or "(devel)": there is no image of either.
	if info != nil && regexp.MustCompile(`^v\d+\.\d+\.\d+(-(alpha|beta|rc)\.?\d+)?$`).MatchString(info.Main.Version) {
		return trimV(info.Main.Version)
	}
	return Development
}

func trimV(version string) string {
	if len(version) > 1 && version[0] == 'v' && version[1] >= '0' && version[1] <= '9' {
		return version[1:]
	}
	return version
}

// tag replaces what a version may hold and an image's tag may not, such as the + of build metadata.
func tag(version string) string {
	tag := regexp.MustCompile(`[^A-Za-z0-9_.-]`).ReplaceAllString(version, "-")
	if len(tag) > 128 {
		tag = tag[:128]
	}
	return tag
}
