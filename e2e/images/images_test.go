package images_test

import (
	"archive/tar"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/e2e/cluster"
	"idlecount.dev/idlecount/e2e/images"
)

func TestTheSameContentHasTheSameDigest(t *testing.T) {
	names := images.All()
	first, err := images.Build(t.Context(), func(line string) { t.Log(line) }, names...)
	require.NoError(t, err)
	second, err := images.Build(t.Context(), nil, names...)
	require.NoError(t, err)
	digests := map[v1.Hash]images.Name{}
	for _, image := range names {
		a, err := first.Digest(image)
		require.NoError(t, err)
		b, err := second.Digest(image)
		require.NoError(t, err)
		require.Equal(t, a, b, "image %s", image)
		require.Empty(t, digests[a], "two images are the same")
		digests[a] = image

		tag, err := first.Tag(image)
		require.NoError(t, err)
		layers, err := first[image].Layers()
		require.NoError(t, err)
		size, err := layers[0].Size()
		require.NoError(t, err)
		t.Logf("%-16s %s %6.1f MB", image, tag, float64(size)/1e6)
	}
}

func TestConfigs(t *testing.T) {
	set, err := images.Build(t.Context(), nil)
	require.NoError(t, err)
	for image, want := range map[images.Name]struct {
		user       string
		entrypoint []string
		path       bool
	}{
		images.Idlecount:     {user: "65532:65532", entrypoint: []string{"/idlecount"}, path: true},
		images.Entrypoint:    {user: "65532:65532", entrypoint: []string{"/entrypoint"}},
		images.Helper:        {path: true},
		images.JobBusybox:    {path: true},
		images.JobBash:       {path: true},
		images.JobNonRoot:    {user: "1000", path: true},
		images.JobEntrypoint: {entrypoint: []string{"/docker-entrypoint.sh"}, path: true},
		images.JobBare:       {},
		images.Service:       {entrypoint: []string{"/bin/busybox", "httpd", "-f", "-p", "8080", "-h", "/www"}, path: true},
	} {
		t.Run(string(image), func(t *testing.T) {
			file, err := set[image].ConfigFile()
			require.NoError(t, err)
			require.Equal(t, want.user, file.Config.User)
			require.Equal(t, want.entrypoint, file.Config.Entrypoint)
			require.Equal(t, want.path, len(file.Config.Env) == 1)
			require.Equal(t, "linux", file.OS)
			require.NotEmpty(t, file.Architecture)
		})
	}
}

func TestAnUnknownImageIsNamed(t *testing.T) {
	_, err := images.Build(t.Context(), nil, "job-windows")
	require.ErrorContains(t, err, "job-windows")
	require.ErrorContains(t, err, "job-busybox")
}

// Scripts that must work in an image, run as root in a chroot.
func TestImagesRun(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("chroot needs root")
	}
	set, err := images.Build(t.Context(), nil, images.JobBusybox, images.JobBash, images.JobEntrypoint, images.JobBare, images.Helper)
	require.NoError(t, err)
	for sentence, test := range map[string]struct {
		image images.Name
		uid   uint32
		run   []string
		want  string
		code  int
	}{
		"busybox finds commands by their links": {images.JobBusybox, 0, []string{"/bin/sh", "-c", "ls /usr/bin/env && echo a b | awk '{print $2}'"}, "/usr/bin/env\nb\n", 0},
		"env finds the shell":                   {images.JobBusybox, 0, []string{"/usr/bin/env", "sh", "-c", "echo $0"}, "sh\n", 0},
		"busybox has no bash":                   {images.JobBusybox, 0, []string{"/usr/bin/env", "bash", "-c", "true"}, "", 127},
		"anybody may write to /tmp":             {images.JobBusybox, 1000, []string{"/bin/sh", "-c", "id -un; echo x > /tmp/x && cat /tmp/x"}, "user\nx\n", 0},
		"nobody may write to /":                 {images.JobBusybox, 1000, []string{"/bin/sh", "-c", "echo x 2>/dev/null > /x || echo refused"}, "refused\n", 0},
		"bash is bash":                          {images.JobBash, 1000, []string{"/usr/bin/env", "bash", "-c", "a=(1 2 3); echo ${#a[@]}"}, "3\n", 0},
		"an entrypoint of its own ends":         {images.JobEntrypoint, 0, []string{"/docker-entrypoint.sh"}, "this image is started by its own entrypoint\n", 9},
		"a shell alone has its applets":         {images.JobBare, 0, []string{"/bin/sh", "-c", "mkdir -p /a/b && ls / && rm -r /a"}, "a\nbin\ndev\n", 0},
		"the helper clones": {images.Helper, 0, []string{"/bin/bash", "-ec", `
			cd /tmp; git init -q -b main r; cd r; echo hi > f; git add f
			git -c user.name=a -c user.email=a@b.c commit -q -m m
			git clone -q file:///tmp/r /tmp/c; cat /tmp/c/f
			git clone http://127.0.0.1:9/none 2>&1 | grep -o 'Failed to connect' | head -n 1`}, "hi\nFailed to connect\n", 0},
		"the helper answers --version": {images.Helper, 1000, []string{"/bin/sh", "-c", "gitlab-runner-helper --version >/dev/null 2>&1 && echo yes"}, "yes\n", 0},
	} {
		t.Run(sentence, func(t *testing.T) {
			out, code := chroot(t, unpack(t, set[test.image]), test.uid, test.run)
			require.Equal(t, test.want, out)
			require.Equal(t, test.code, code)
		})
	}
}

func TestPublishGivesReferencesThatCanBePulled(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, nil, 0o600))
	target, err := cluster.Open(t.Context(), cluster.TargetOptions{
		Kind: cluster.KindExisting, Kubeconfig: kubeconfig, Registry: strings.TrimPrefix(server.URL, "http://") + "/test",
	})
	require.NoError(t, err)
	set, err := images.Build(t.Context(), nil, images.JobBusybox, images.JobBare)
	require.NoError(t, err)
	for range 2 {
		references, err := set.Publish(t.Context(), target)
		require.NoError(t, err)
		require.Len(t, references, 2)
		reference, err := name.ParseReference(references[images.JobBusybox])
		require.NoError(t, err)
		pulled, err := remote.Image(reference, remote.WithContext(t.Context()))
		require.NoError(t, err)
		got, err := pulled.Digest()
		require.NoError(t, err)
		want, err := set.Digest(images.JobBusybox)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

// unpack writes an image's files to a new folder, with what a container has in /dev.
func unpack(t *testing.T, image v1.Image) string {
	t.Helper()
	root := t.TempDir()
	require.NoError(t, os.Chmod(root, 0o755))
	content := mutate.Extract(image)
	defer func() { require.NoError(t, content.Close()) }()
	for r := tar.NewReader(content); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		path := filepath.Join(root, header.Name)
		switch header.Typeflag {
		case tar.TypeDir:
			require.NoError(t, os.MkdirAll(path, 0o755))
			require.NoError(t, syscall.Chmod(path, uint32(header.Mode)))
		case tar.TypeSymlink:
			require.NoError(t, os.Symlink(header.Linkname, path))
		default:
			data, err := io.ReadAll(r)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, data, 0o600))
			require.NoError(t, syscall.Chmod(path, uint32(header.Mode)))
		}
	}
	require.NoError(t, os.Mkdir(filepath.Join(root, "dev"), 0o755))
	for device, minor := range map[string]int{"null": 3, "urandom": 9} {
		path := filepath.Join(root, "dev", device)
		require.NoError(t, syscall.Mknod(path, syscall.S_IFCHR|0o666, 1<<8|minor))
		require.NoError(t, syscall.Chmod(path, 0o666))
	}
	return root
}

func chroot(t *testing.T, root string, uid uint32, run []string) (output string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), run[0], run[1:]...)
	cmd.Path, cmd.Err = run[0], nil
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/tmp"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	t.Log(stderr.String())
	return string(out), cmd.ProcessState.ExitCode()
}
