package main

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/stretchr/testify/require"
)

// start serves the folder's registry and returns its host:port.
func start(t *testing.T, data string) (address string, stop func()) {
	t.Helper()
	handler, err := newHandler(data, log.New(io.Discard, "", 0))
	require.NoError(t, err)
	server := httptest.NewServer(handler)
	return strings.TrimPrefix(server.URL, "http://"), server.Close
}

func reference(t *testing.T, address, rest string) name.Reference {
	t.Helper()
	ref, err := name.ParseReference(address + "/" + rest)
	require.NoError(t, err)
	return ref
}

func randomImage(t *testing.T) v1.Image {
	t.Helper()
	image, err := random.Image(1024, 2)
	require.NoError(t, err)
	return image
}

func digest(t *testing.T, image interface{ Digest() (v1.Hash, error) }) v1.Hash {
	t.Helper()
	hash, err := image.Digest()
	require.NoError(t, err)
	return hash
}

// requireComplete reads all layers, which checks their digests.
func requireComplete(t *testing.T, image v1.Image) {
	t.Helper()
	layers, err := image.Layers()
	require.NoError(t, err)
	require.NotEmpty(t, layers)
	for _, layer := range layers {
		blob, err := layer.Compressed()
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, blob)
		require.NoError(t, err)
		require.NoError(t, blob.Close())
	}
}

// requireCode checks the registry's error code, as a kubelet would report it.
func requireCode(t *testing.T, err error, code transport.ErrorCode) {
	t.Helper()
	answer, ok := errors.AsType[*transport.Error](err)
	require.True(t, ok, "not an answer of a registry: %v", err)
	require.Equal(t, http.StatusNotFound, answer.StatusCode)
	require.Equal(t, code, answer.Errors[0].Code)
}

func TestPushedImagesSurviveARestart(t *testing.T) {
	data := t.TempDir()
	address, stop := start(t, data)
	first, second := randomImage(t), randomImage(t)
	require.NoError(t, remote.Write(reference(t, address, "team/job:1"), first))
	firstDigest := digest(t, first).String()
	require.NoError(t, remote.Write(reference(t, address, "team/job:1"), second), "a tag may move")
	stop()

	address, stop = start(t, data)
	defer stop()
	got, err := remote.Image(reference(t, address, "team/job:1"))
	require.NoError(t, err)
	require.Equal(t, digest(t, second), digest(t, got))
	requireComplete(t, got)
	old, err := remote.Image(reference(t, address, "team/job@"+firstDigest))
	require.NoError(t, err, "a digest stays when its tag moves")
	requireComplete(t, old)
}

func TestAnIndexSurvivesARestart(t *testing.T) {
	data := t.TempDir()
	address, stop := start(t, data)
	index, err := random.Index(512, 1, 3)
	require.NoError(t, err)
	require.NoError(t, remote.WriteIndex(reference(t, address, "multi:1"), index))
	stop()

	address, stop = start(t, data)
	defer stop()
	got, err := remote.Index(reference(t, address, "multi:1"))
	require.NoError(t, err)
	manifest, err := got.IndexManifest()
	require.NoError(t, err)
	require.Len(t, manifest.Manifests, 3)
	for _, m := range manifest.Manifests {
		image, err := got.Image(m.Digest)
		require.NoError(t, err)
		requireComplete(t, image)
	}
}

func TestWhatIsMissingIsSaidLikeARegistryDoes(t *testing.T) {
	address, stop := start(t, t.TempDir())
	defer stop()
	_, err := remote.Image(reference(t, address, "nothing:1"))
	requireCode(t, err, transport.NameUnknownErrorCode)
	require.NoError(t, remote.Write(reference(t, address, "job:1"), randomImage(t)))
	_, err = remote.Image(reference(t, address, "job:2"))
	requireCode(t, err, transport.ManifestUnknownErrorCode)
}

func TestADeletedTagStaysDeleted(t *testing.T) {
	data := t.TempDir()
	address, stop := start(t, data)
	require.NoError(t, remote.Write(reference(t, address, "job:1"), randomImage(t)))
	require.NoError(t, remote.Write(reference(t, address, "job:2"), randomImage(t)))
	require.NoError(t, remote.Delete(reference(t, address, "job:1")))
	stop()

	address, stop = start(t, data)
	defer stop()
	_, err := remote.Image(reference(t, address, "job:1"))
	requireCode(t, err, transport.ManifestUnknownErrorCode)
	_, err = remote.Image(reference(t, address, "job:2"))
	require.NoError(t, err)
}

func TestARefusedManifestIsNotKept(t *testing.T) {
	data := t.TempDir()
	address, stop := start(t, data)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://"+address+"/v2/multi/manifests/1",
		strings.NewReader(`{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","size":1,"digest":"sha256:`+strings.Repeat("0", 64)+`"}]}`))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/vnd.oci.image.index.v1+json")
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusNotFound, response.StatusCode, "an index of images that are not there")
	stop()

	_, stop = start(t, data) // would fail on what it can't take back
	stop()
}

func TestAWriteThatWasCutOffIsDropped(t *testing.T) {
	data := t.TempDir()
	address, stop := start(t, data)
	require.NoError(t, remote.Write(reference(t, address, "job:1"), randomImage(t)))
	stop()
	partial := filepath.Join(data, "manifests", "partial-123")
	require.NoError(t, os.WriteFile(partial, []byte(`{"pa`), 0o600))

	address, stop = start(t, data)
	defer stop()
	require.NoFileExists(t, partial)
	_, err := remote.Image(reference(t, address, "job:1"))
	require.NoError(t, err)
}

func TestServeEndsWithItsContextAndNamesAnAddressItCannotHave(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, serve(ctx, "127.0.0.1:0", t.TempDir()))

	address, stop := start(t, t.TempDir())
	defer stop()
	require.ErrorContains(t, serve(t.Context(), address, t.TempDir()), address)
}
