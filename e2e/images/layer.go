package images

import (
	"archive/tar"
	"bytes"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// rootfs is what a layer will hold, by absolute path without the leading slash. Everything belongs to root.
type rootfs map[string]entry

// entry is one file, link or folder. Exactly one of source, data, link and dir is used.
type entry struct {
	mode   int64  // permission bits
	source string // a file of this machine
	data   string
	link   string // target of a symbolic link
	dir    bool
}

func (fs rootfs) file(name, source string) { fs[name] = entry{mode: 0o755, source: source} }
func (fs rootfs) text(name, data string)   { fs[name] = entry{mode: 0o644, data: data} }
func (fs rootfs) link(name, target string) { fs[name] = entry{mode: 0o777, link: target} }
func (fs rootfs) dir(name string, mode int64) {
	fs[name] = entry{mode: mode, dir: true}
}

// layer packs the files in the order of their names, with fixed owners and times, so that the same content has the same
// digest on every machine. It is not compressed: these images only travel over loopback, where packing costs more than it saves.
func (fs rootfs) layer() (v1.Layer, error) {
	fs.addParents()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, name := range slices.Sorted(maps.Keys(fs)) {
		if err := fs[name].write(w, name); err != nil {
			return nil, fmt.Errorf("pack /%s: %w", name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("pack layer: %w", err)
	}
	return static.NewLayer(buf.Bytes(), types.OCIUncompressedLayer), nil
}

// addParents names the folders above each file, since a runtime would make up their mode otherwise.
func (fs rootfs) addParents() {
	for _, name := range slices.Collect(maps.Keys(fs)) {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if _, known := fs[dir]; !known {
				fs.dir(dir, 0o755)
			}
		}
	}
}

func (e entry) write(w *tar.Writer, name string) error {
	header := &tar.Header{Name: name, Mode: e.mode, ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
	content := []byte(e.data)
	switch {
	case e.dir:
		header.Typeflag, header.Name = tar.TypeDir, name+"/"
	case e.link != "":
		header.Typeflag, header.Linkname = tar.TypeSymlink, e.link
	default:
		header.Typeflag = tar.TypeReg
		if e.source != "" {
			var err error
			if content, err = os.ReadFile(e.source); err != nil {
				return err
			}
		}
		header.Size = int64(len(content))
	}
	if err := w.WriteHeader(header); err != nil {
		return err
	}
	_, err := w.Write(content)
	return err
}
