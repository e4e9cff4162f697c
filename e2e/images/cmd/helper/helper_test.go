package main

import (
	"archive/zip"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// project makes a working directory with files as a job leaves them.
func project(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Chdir(dir)
	require.NoError(t, os.MkdirAll("out/empty", 0o755))
	require.NoError(t, os.WriteFile("out/a.txt", []byte("hi\n"), 0o644))
	require.NoError(t, os.WriteFile("out/run.sh", []byte("#!/bin/sh\n"), 0o755))
	require.NoError(t, os.Symlink("a.txt", "out/link"))
	require.NoError(t, os.WriteFile("other.txt", []byte("not asked for"), 0o644))
	return dir
}

func TestCacheComesBackAsItWas(t *testing.T) {
	project(t)
	cache := filepath.Join(t.TempDir(), "grp/prj/k/cache.zip")
	// The flags are those of a recorded script.
	require.NoError(t, run(t.Context(), []string{"cache-archiver", "--file", cache, "--alternate-file", cache + "x",
		"--timeout", "10", "--path", "out/", "--env-file", "/nonexistent"}))

	t.Chdir(t.TempDir())
	require.NoError(t, run(t.Context(), []string{"cache-extractor", "--file", cache, "--timeout", "10"}))
	content, err := os.ReadFile("out/link")
	require.NoError(t, err)
	require.Equal(t, "hi\n", string(content))
	target, err := os.Readlink("out/link")
	require.NoError(t, err)
	require.Equal(t, "a.txt", target)
	info, err := os.Stat("out/run.sh")
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o755), info.Mode().Perm())
	require.DirExists(t, "out/empty")
	require.NoFileExists(t, "other.txt")

	require.NoError(t, run(t.Context(), []string{"cache-extractor", "--file", cache}), "a second time, over the same files")
}

func TestCacheThatDoesNotExistIsAFailure(t *testing.T) {
	t.Chdir(t.TempDir())
	require.ErrorContains(t, run(t.Context(), []string{"cache-extractor", "--file", "nowhere/cache.zip"}), "does not exist")
}

func TestRefusals(t *testing.T) {
	project(t)
	for sentence, args := range map[string][]string{
		"no command":                      {},
		"an unknown command":              {"health-check"},
		"an unknown flag":                 {"cache-archiver", "--file", "x", "--untracked"},
		"a cache in object storage":       {"cache-archiver", "--file", "x", "--path", "out", "--url", "http://127.0.0.1:1"},
		"a cache from object storage":     {"cache-extractor", "--file", "x", "--url", "http://127.0.0.1:1"},
		"a path outside the project":      {"cache-archiver", "--file", "x", "--path", "../etc"},
		"an absolute path":                {"cache-archiver", "--file", "x", "--path", "/etc"},
		"another format than zip":         {"artifacts-uploader", "--url", "http://127.0.0.1:1", "--token", "t", "--id", "1", "--path", "out", "--artifact-format", "gzip"},
		"artifacts without a coordinator": {"artifacts-uploader", "--path", "out"},
	} {
		t.Run(sentence, func(t *testing.T) { require.Error(t, run(t.Context(), args)) })
	}
}

func TestAnArchiveCannotLeaveTheWorkingDirectory(t *testing.T) {
	outside := t.TempDir()
	for sentence, entries := range map[string][][2]string{
		"by its name": {{"../evil.txt", "x"}},
		"by a link":   {{"link->", outside}, {"link/evil.txt", "x"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			dir := t.TempDir()
			t.Chdir(filepath.Join(dir))
			file, err := os.Create("evil.zip")
			require.NoError(t, err)
			archive := zip.NewWriter(file)
			for _, e := range entries {
				header := &zip.FileHeader{Name: e[0]}
				header.SetMode(0o644)
				if e[0] == "link->" {
					header.Name = "link"
					header.SetMode(os.ModeSymlink | 0o777)
				}
				w, err := archive.CreateHeader(header)
				require.NoError(t, err)
				_, err = io.WriteString(w, e[1])
				require.NoError(t, err)
			}
			require.NoError(t, archive.Close())
			require.NoError(t, file.Close())

			require.Error(t, unpack("evil.zip"))
			require.NoFileExists(t, filepath.Join(outside, "evil.txt"))
			require.NoFileExists(t, filepath.Join(dir, "..", "evil.txt"))
		})
	}
}

func TestArtifactsArePostedAsGitLabTakesThem(t *testing.T) {
	project(t)
	var archive []byte
	var posted *http.Request
	var name string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = w.Write(archive)
			return
		}
		posted = r
		file, header, err := r.FormFile("file")
		if err == nil {
			name = header.Filename
			archive, err = io.ReadAll(file)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.WriteHeader(http.StatusCreated)
	}))
	defer server.Close()
	require.NoError(t, run(t.Context(), []string{"artifacts-uploader", "--url", server.URL, "--token", "jobtok-106", "--id", "106",
		"--timeout", "1h0m0s", "--response-header-timeout", "10m0s", "--path", "out/", "--exclude", "out/run.sh", "--name", "a",
		"--artifact-format", "zip", "--artifact-type", "archive"}))
	require.Equal(t, "/api/v4/jobs/106/artifacts", posted.URL.Path)
	require.Equal(t, "artifact_format=zip&artifact_type=archive", posted.URL.RawQuery)
	require.Equal(t, "jobtok-106", posted.Header.Get("JOB-TOKEN"))
	require.Equal(t, "a.zip", name)

	t.Chdir(t.TempDir())
	require.NoError(t, run(t.Context(), []string{"artifacts-downloader", "--url", server.URL, "--token", "jobtok-107", "--id", "106"}))
	require.FileExists(t, "out/a.txt")
	require.NoFileExists(t, "out/run.sh")
	left, err := filepath.Glob(".artifacts-*")
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestArtifactsThatAreNotTakenAreTriedThreeTimes(t *testing.T) {
	project(t)
	var posts atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		posts.Add(1)
		http.NotFound(w, nil)
	}))
	defer server.Close()
	err := run(t.Context(), []string{"artifacts-uploader", "--url", server.URL, "--token", "t", "--id", "106", "--path", "out"})
	require.ErrorContains(t, err, "404")
	require.EqualValues(t, 3, posts.Load())
}
