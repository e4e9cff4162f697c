package cluster

import (
	"bytes"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/require"
	kindlog "sigs.k8s.io/kind/pkg/log"
	"sigs.k8s.io/yaml"
)

func randomImage(t *testing.T) v1.Image {
	t.Helper()
	image, err := random.Image(256, 1)
	require.NoError(t, err)
	return image
}

func TestAReferenceFollowsTheContent(t *testing.T) {
	image := randomImage(t)
	digest, err := image.Digest()
	require.NoError(t, err)
	first, err := referenceFor("127.0.0.1:5990", "idlecount", image)
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1:5990/idlecount:"+digest.Hex[:12], first.String())
	second, err := referenceFor("127.0.0.1:5990", "idlecount", randomImage(t))
	require.NoError(t, err)
	require.NotEqual(t, first, second)
	_, err = referenceFor("127.0.0.1:5990", "Not A Name", image)
	require.ErrorContains(t, err, "image Not A Name")
}

func TestAnExistingClusterGetsItsImagesFromTheGivenRegistry(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, nil, 0o600))
	target, err := Open(t.Context(), TargetOptions{
		Kind:       KindExisting,
		Kubeconfig: kubeconfig,
		Registry:   strings.TrimPrefix(server.URL, "http://") + "/team/",
	})
	require.NoError(t, err)
	require.Equal(t, kubeconfig, target.Kubeconfig())

	images := map[string]v1.Image{"idlecount": randomImage(t), "entrypoint": randomImage(t)}
	references, err := target.Publish(t.Context(), images)
	require.NoError(t, err)
	require.Len(t, references, 2)
	for repository, reference := range references {
		require.Contains(t, reference, "/team/"+repository+":")
		parsed, err := name.ParseReference(reference)
		require.NoError(t, err)
		got, err := remote.Image(parsed)
		require.NoError(t, err)
		wanted, err := images[repository].Digest()
		require.NoError(t, err)
		digest, err := got.Digest()
		require.NoError(t, err)
		require.Equal(t, wanted, digest)
	}
}

func TestOpenSaysWhatIsMissing(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, nil, 0o600))
	t.Setenv("PATH", t.TempDir()) // no Docker
	for name, c := range map[string]struct {
		options TargetOptions
		want    string
	}{
		"an unknown kind":                    {TargetOptions{Kind: "minikube"}, `no kind of cluster is called "minikube"`},
		"an existing one without kubeconfig": {TargetOptions{Kind: KindExisting}, "set KUBECONFIG"},
		"a kubeconfig that points nowhere":   {TargetOptions{Kind: KindExisting, Kubeconfig: "/no/such/file"}, "/no/such/file"},
		"an existing one without registry":   {TargetOptions{Kind: KindExisting, Kubeconfig: kubeconfig}, "set REGISTRY"},
		"kind where Docker does not answer":  {TargetOptions{Kind: KindKind}, "start Docker"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Open(t.Context(), c.options)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestDockerAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		want   bool
	}{
		"a daemon behind it": {"echo 27.0.1", true},
		"no daemon":          {"echo 'Cannot connect to the Docker daemon' >&2; exit 1", false},
		"an empty answer":    {"echo", false},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(folder, "docker"), []byte("#!/bin/sh\n"+c.script+"\n"), 0o755))
			t.Setenv("PATH", folder+":/usr/bin:/bin")
			require.Equal(t, c.want, dockerAnswers(t.Context()))
		})
	}
	t.Run("no client", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		require.False(t, dockerAnswers(t.Context()))
	})
}

func TestKindConfig(t *testing.T) {
	config := kindConfig()
	require.Equal(t, "kind.x-k8s.io/v1alpha4", config.APIVersion)
	require.Len(t, config.Nodes, 1)
	var kubelet map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(config.Nodes[0].KubeadmConfigPatches[0]), &kubelet))
	require.Equal(t, "KubeletConfiguration", kubelet["kind"])
	require.EqualValues(t, 250, kubelet["maxPods"])
	require.NotEmpty(t, kindOptions("/k"))
}

func TestKindLogShowsWhatItsUserShouldSee(t *testing.T) {
	var out bytes.Buffer
	var logger kindlog.Logger = kindLog{&out}
	logger.V(0).Infof("Preparing %s", "nodes")
	logger.V(1).Info("a detail")
	logger.Warnf("careful with %d", 1)
	require.False(t, logger.V(1).Enabled())
	require.Equal(t, "Preparing nodes\ncareful with 1\n", out.String())
}
