package main

import (
	"bytes"
	"io"
	"log"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/require"
)

func TestImagesArePushedAndNamed(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	var stdout bytes.Buffer
	require.NoError(t, run(t.Context(), []string{strings.TrimPrefix(server.URL, "http://") + "/ci"}, &stdout, t.Output()))
	lines := strings.Fields(stdout.String())
	require.Len(t, lines, 2)
	for i, repository := range []string{"ci/idlecount", "ci/entrypoint"} {
		reference, err := name.ParseReference(lines[i])
		require.NoError(t, err)
		require.Equal(t, repository, reference.Context().RepositoryStr())
		_, err = remote.Head(reference, remote.WithContext(t.Context()))
		require.NoError(t, err)
	}
}

func TestARegistryThatIsMissing(t *testing.T) {
	require.ErrorContains(t, run(t.Context(), nil, io.Discard, io.Discard), "make images REGISTRY=")
	closed := httptest.NewServer(nil)
	closed.Close()
	err := run(t.Context(), []string{strings.TrimPrefix(closed.URL, "http://")}, io.Discard, io.Discard)
	require.ErrorContains(t, err, "may you push to it")
}
