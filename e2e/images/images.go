// Package images builds the container images of idlecount and those that its tests run jobs in, from files of this
// machine: the product's own binaries, Debian's static busybox and bash, and git with the libraries it loads. It needs
// neither Docker nor a registry; where the images go is the caller's business (Push serves any registry).
//
// The same content always has the same digest, and the tag is made of the digest, so that a pull policy of IfNotPresent is
// right and a second push costs nothing.
package images

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"idlecount.dev/idlecount/e2e/cluster"
)

// Name is one image.
type Name string

// The images. Those of jobs differ in what a script finds in them.
const (
	Idlecount     Name = "idlecount"      // manager and driver: /idlecount, /idlecount-executor; user 65532
	Entrypoint    Name = "entrypoint"     // the init image: /entrypoint; user 65532
	Helper        Name = "helper"         // busybox, bash, git, a stand-in for gitlab-runner-helper in /usr/bin
	JobBusybox    Name = "job-busybox"    // busybox with links for all applets; no bash
	JobBash       Name = "job-bash"       // the same, and /bin/bash
	JobNonRoot    Name = "job-nonroot"    // job-bash with USER 1000
	JobEntrypoint Name = "job-entrypoint" // job-bash with an ENTRYPOINT of its own, which ends at once with code 9
	JobBare       Name = "job-bare"       // /bin/sh and nothing else: no env, no /tmp, no passwd, no PATH
	Service       Name = "service"        // answers HTTP on port 8080 with "hello from the service"
)

// All are the names that Build knows, in the order in which it builds them.
func All() []Name {
	return []Name{Idlecount, Entrypoint, Helper, JobBusybox, JobBash, JobNonRoot, JobEntrypoint, JobBare, Service}
}

// Set is images by name.
type Set map[Name]v1.Image

// searchPath is PATH as Docker's base images set it.
const searchPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Build makes the named images, all of them where none is named. What the Go toolchain has built before is not built
// again; missing Debian packages are installed where that is possible. progress is told what is being done, a line each; it may be nil. An error names the Debian package to install
// where a file of this machine is missing.
func Build(ctx context.Context, progress func(line string), names ...Name) (Set, error) {
	if len(names) == 0 {
		names = All()
	}
	if progress == nil {
		progress = func(string) {}
	}
	if err := cluster.EnsurePackages(ctx, lines(progress), packages()); err != nil {
		return nil, err
	}
	binaries, cleanUp, err := buildFor(ctx, progress, names)
	if err != nil {
		return nil, err
	}
	defer cleanUp()
	set := Set{}
	for _, name := range names {
		progress(fmt.Sprintf("packing image %s", name))
		image, err := build(ctx, name, binaries)
		if err != nil {
			return nil, fmt.Errorf("build image %s: %w", name, err)
		}
		set[name] = image
	}
	return set, nil
}

// packages are the Debian packages that bring what the images are packed from, by file.
func packages() map[string]string {
	return map[string]string{busyboxFile: "busybox-static", bashFile: "bash-static", "git": "git"}
}

// lines is a writer that tells each write as a line.
type lines func(line string)

func (l lines) Write(p []byte) (int, error) {
	l(strings.TrimSuffix(string(p), "\n"))
	return len(p), nil
}

// build makes one image.
func build(ctx context.Context, name Name, binaries Binaries) (v1.Image, error) {
	fs, config, err := contents(ctx, name, binaries)
	if err != nil {
		return nil, err
	}
	layer, err := fs.layer()
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	epoch := v1.Time{Time: time.Unix(0, 0).UTC()}
	image, err = mutate.Append(image, mutate.Addendum{
		Layer:   layer,
		History: v1.History{Created: epoch, CreatedBy: "idlecount e2e/images " + string(name)},
	})
	if err != nil {
		return nil, err
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.Created, file.OS, file.Architecture, file.Config = epoch, "linux", runtime.GOARCH, config
	return mutate.ConfigFile(image, file)
}

// contents says what is in an image and how it runs.
func contents(ctx context.Context, name Name, binaries Binaries) (rootfs, v1.Config, error) {
	fs := rootfs{}
	switch name {
	case Idlecount:
		fs.file("idlecount", binaries.Idlecount)
		fs.file("idlecount-executor", binaries.Executor)
		fs.users()
		return fs, v1.Config{User: "65532:65532", Entrypoint: []string{"/idlecount"}, Env: []string{searchPath + ":/"}}, nil
	case Entrypoint:
		fs.file("entrypoint", binaries.Entrypoint)
		return fs, v1.Config{User: "65532:65532", Entrypoint: []string{"/entrypoint"}}, nil
	case Helper:
		return fs, v1.Config{Env: []string{searchPath}, Cmd: []string{"/bin/sh"}}, helper(ctx, fs, binaries)
	case JobBusybox:
		return fs, v1.Config{Env: []string{searchPath}, Cmd: []string{"/bin/sh"}}, busybox(ctx, fs)
	case JobBash, JobNonRoot, JobEntrypoint:
		config := v1.Config{Env: []string{searchPath}, Cmd: []string{"/bin/bash"}}
		if name == JobNonRoot {
			config.User = "1000"
		}
		if name == JobEntrypoint {
			fs["docker-entrypoint.sh"] = entry{mode: 0o755, data: "#!/bin/sh\necho this image is started by its own entrypoint\nexit 9\n"}
			config.Entrypoint, config.Cmd = []string{"/docker-entrypoint.sh"}, nil
		}
		return fs, config, bash(ctx, fs)
	case Service:
		fs.text("www/index.html", "hello from the service\n")
		return fs, v1.Config{Env: []string{searchPath}, Entrypoint: []string{"/bin/busybox", "httpd", "-f", "-p", "8080", "-h", "/www"}}, busybox(ctx, fs)
	case JobBare:
		return fs, v1.Config{}, bare(fs)
	default:
		return nil, v1.Config{}, fmt.Errorf("no image has this name, known are %v", All())
	}
}

// Digest is the image's digest, sha256:….
func (s Set) Digest(name Name) (v1.Hash, error) {
	image, ok := s[name]
	if !ok {
		return v1.Hash{}, fmt.Errorf("image %s was not built, only %v", name, slices.Sorted(maps.Keys(s)))
	}
	return image.Digest()
}

// Tag is the tag an image is pushed with: the beginning of its digest, so that it names one content for ever.
func (s Set) Tag(name Name) (string, error) {
	digest, err := s.Digest(name)
	if err != nil {
		return "", err
	}
	return digest.Hex[:12], nil
}
