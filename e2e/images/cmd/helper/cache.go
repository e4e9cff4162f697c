package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// extractCache unpacks a cache file. A cache that doesn't exist is a failure, which the job's script reports and survives.
func extractCache(args []string) error {
	flags := flag.NewFlagSet("cache-extractor", flag.ContinueOnError)
	file := flags.String("file", "", "the cache file")
	remote := flags.String("url", "", "where object storage has the cache")
	_ = flags.Int("timeout", 10, "minutes a download may take")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *remote != "" {
		return errors.New("cache-extractor: caches in object storage are not part of this stand-in")
	}
	if *file == "" {
		return errors.New("cache-extractor: --file is missing")
	}
	fmt.Println("No URL provided, cache will not be downloaded from shared cache server. Instead a local version of cache will be extracted.")
	if _, err := os.Stat(*file); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cache file %s does not exist", *file)
	}
	return unpack(*file)
}

// archiveCache packs paths into a cache file, which it replaces in one step: another job may be reading it.
func archiveCache(args []string) error {
	flags := flag.NewFlagSet("cache-archiver", flag.ContinueOnError)
	file := flags.String("file", "", "the cache file")
	// GitLab Runner moves a cache from this path when the naming of keys has changed. There is never one in a test.
	_ = flags.String("alternate-file", "", "the cache file under the other naming of keys")
	_ = flags.Int("timeout", 10, "minutes an upload may take")
	_ = flags.String("env-file", "", "metadata for object storage")
	remote := flags.String("url", "", "where object storage wants the cache")
	what := selectionFlags(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *remote != "" {
		return errors.New("cache-archiver: caches in object storage are not part of this stand-in")
	}
	if *file == "" {
		return errors.New("cache-archiver: --file is missing")
	}
	names, err := what.files()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(*file), 0o777); err != nil {
		return err
	}
	temporary, err := os.CreateTemp(filepath.Dir(*file), "archive_")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(temporary.Name()) }()
	if err := pack(temporary, names); err != nil {
		return errors.Join(err, temporary.Close())
	}
	if err := temporary.Close(); err != nil {
		return err
	}
	fmt.Println("No URL provided, cache will not be uploaded to shared cache server. Cache will be stored only locally.")
	return os.Rename(temporary.Name(), *file)
}
