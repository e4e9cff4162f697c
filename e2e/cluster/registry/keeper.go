package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
)

// keeper writes the manifests that inner accepts to disk and hands them to inner again at the start: the library's
// registry has a disk store for blobs, but keeps manifests and tags in memory only.
type keeper struct {
	folder string
	inner  http.Handler
}

// record is one accepted PUT of a manifest.
type record struct {
	Path        string `json:"path"` // /v2/<name>/manifests/<tag or digest>
	ContentType string `json:"contentType"`
	Body        []byte `json:"body"`
}

// manifestLimit is the size that the distribution specification asks registries to accept.
const manifestLimit = 4 << 20

func newKeeper(folder string, inner http.Handler) (http.Handler, error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, err
	}
	k := keeper{folder: folder, inner: inner}
	records, err := k.load()
	if err != nil {
		return nil, err
	}
	if err := k.replay(records); err != nil {
		return nil, err
	}
	return k, nil
}

func (k keeper) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	isManifest := strings.Contains(r.URL.Path, "/manifests/")
	switch {
	case isManifest && r.Method == http.MethodPut:
		k.put(w, r)
	case isManifest && r.Method == http.MethodDelete:
		answer := &statusWriter{ResponseWriter: w}
		k.inner.ServeHTTP(answer, r)
		if answer.status < http.StatusMultipleChoices {
			_ = os.Remove(k.file(r.URL.Path))
		}
	default:
		k.inner.ServeHTTP(w, r)
	}
}

func (k keeper) put(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, manifestLimit))
	if err != nil {
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	rec := record{Path: r.URL.Path, ContentType: r.Header.Get("Content-Type"), Body: body}
	// First on disk, then in memory: whoever got an answer finds the manifest after a restart too.
	digest := sha256.Sum256(body)
	byDigest := rec
	byDigest.Path = rec.Path[:strings.LastIndex(rec.Path, "/")+1] + "sha256:" + hex.EncodeToString(digest[:])
	for _, one := range []record{rec, byDigest} {
		if err := k.store(one); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	answer := &statusWriter{ResponseWriter: w}
	k.inner.ServeHTTP(answer, r)
	if answer.status >= http.StatusMultipleChoices {
		_ = os.Remove(k.file(rec.Path))
		_ = os.Remove(k.file(byDigest.Path))
	}
}

func (k keeper) file(path string) string {
	name := sha256.Sum256([]byte(path))
	return filepath.Join(k.folder, hex.EncodeToString(name[:])+".json")
}

func (k keeper) store(rec record) error {
	content, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	partial, err := os.CreateTemp(k.folder, "partial-*")
	if err != nil {
		return err
	}
	_, err = partial.Write(content)
	if err := errors.Join(err, partial.Close()); err != nil {
		return err
	}
	return os.Rename(partial.Name(), k.file(rec.Path))
}

func (k keeper) load() ([]record, error) {
	var records []record
	err := filepath.WalkDir(k.folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if filepath.Ext(path) != ".json" {
			return os.Remove(path) // a write that was cut off
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var rec record
		if err := json.Unmarshal(content, &rec); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		records = append(records, rec)
		return nil
	})
	return records, err
}

// replay hands the records to inner. An index is refused until what it lists is there, so the refused ones are tried
// again for as long as that gets any further.
func (k keeper) replay(records []record) error {
	for len(records) > 0 {
		var refused []record
		for _, rec := range records {
			request := httptest.NewRequest(http.MethodPut, rec.Path, bytes.NewReader(rec.Body))
			request.Header.Set("Content-Type", rec.ContentType)
			answer := httptest.NewRecorder()
			k.inner.ServeHTTP(answer, request)
			if answer.Code != http.StatusCreated {
				refused = append(refused, rec)
			}
		}
		if len(refused) == len(records) {
			return fmt.Errorf("%d stored manifests are refused, for example %s", len(refused), refused[0].Path)
		}
		records = refused
	}
	return nil
}

type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}
