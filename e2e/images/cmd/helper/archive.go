package main

import (
	"archive/zip"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// selection is which files of the working directory go into an archive.
type selection struct {
	paths   []string // paths or patterns, relative to the working directory
	exclude []string
}

// selectionFlags declares --path and --exclude, which may be repeated. --untracked is refused by not being there.
func selectionFlags(flags *flag.FlagSet) *selection {
	s := &selection{}
	flags.Func("path", "a path or pattern to pack", func(p string) error {
		s.paths = append(s.paths, p)
		return nil
	})
	flags.Func("exclude", "a pattern to leave out", func(p string) error {
		s.exclude = append(s.exclude, p)
		return nil
	})
	return s
}

// files are the selected files, folders before what is in them. A path that matches nothing is told and skipped, as GitLab does.
func (s *selection) files() ([]string, error) {
	found := map[string]bool{}
	for _, pattern := range s.paths {
		pattern = filepath.Clean(pattern)
		if !filepath.IsLocal(pattern) {
			return nil, fmt.Errorf("path %s is outside of the project", pattern)
		}
		matches, err := filepath.Glob(pattern)
		if err != nil {
			return nil, fmt.Errorf("path %s: %w", pattern, err)
		}
		if len(matches) == 0 {
			fmt.Fprintf(os.Stderr, "WARNING: %s: no matching files. Ensure that the artifact path is relative to the working directory\n", pattern)
		}
		before := len(found)
		for _, match := range matches {
			if err := filepath.WalkDir(match, s.add(found)); err != nil {
				return nil, err
			}
		}
		if len(matches) > 0 {
			fmt.Printf("%s: found %d matching artifact files and directories\n", pattern, len(found)-before)
		}
	}
	names := make([]string, 0, len(found))
	for name := range found {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

func (s *selection) add(found map[string]bool) fs.WalkDirFunc {
	return func(name string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		for _, pattern := range s.exclude {
			if excluded, err := filepath.Match(pattern, name); err != nil {
				return fmt.Errorf("exclude %s: %w", pattern, err)
			} else if excluded {
				return nil
			}
		}
		found[name] = true
		return nil
	}
}

// pack writes a zip archive of the named files, with their modes and symbolic links.
func pack(w io.Writer, names []string) error {
	archive := zip.NewWriter(w)
	for _, name := range names {
		if err := packFile(archive, name); err != nil {
			return fmt.Errorf("pack %s: %w", name, err)
		}
	}
	return archive.Close()
}

func packFile(archive *zip.Writer, name string) error {
	info, err := os.Lstat(name)
	if err != nil {
		return err
	}
	header, err := zip.FileInfoHeader(info)
	if err != nil {
		return err
	}
	header.Name, header.Method = filepath.ToSlash(name), zip.Deflate
	if info.IsDir() {
		header.Name += "/"
		header.Method = zip.Store
	}
	w, err := archive.CreateHeader(header)
	switch {
	case err != nil || info.IsDir():
		return err
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(name)
		if err != nil {
			return err
		}
		_, err = io.WriteString(w, target)
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("is neither a file, a folder nor a link")
	}
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, file)
	return errors.Join(err, file.Close())
}

// unpack writes a zip archive's files below the working directory. Nothing it does can leave it: not even through a link
// that the archive itself brought.
func unpack(file string) (err error) {
	archive, err := zip.OpenReader(file)
	if err != nil {
		return fmt.Errorf("open archive %s: %w", file, err)
	}
	defer func() { err = errors.Join(err, archive.Close()) }()
	root, err := os.OpenRoot(".")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	for _, f := range archive.File {
		if err := unpackFile(root, f); err != nil {
			return fmt.Errorf("unpack %s: %w", f.Name, err)
		}
	}
	return nil
}

func unpackFile(root *os.Root, f *zip.File) (err error) {
	name := strings.TrimSuffix(f.Name, "/")
	if f.Mode().IsDir() {
		return root.MkdirAll(name, f.Mode().Perm())
	}
	if err := root.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		return err
	}
	r, err := f.Open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if f.Mode()&fs.ModeSymlink != 0 {
		target, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		return root.Symlink(string(target), name)
	}
	out, err := root.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_EXCL, f.Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(out, r)
	return errors.Join(err, out.Close())
}
