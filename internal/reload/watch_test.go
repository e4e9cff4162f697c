package reload_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/internal/reload"
)

// patience bounds waits for what is to happen; it is below the time after which files are looked at anyway, so that a
// test can't pass without having been told of the change.
const patience = 15 * time.Second

// watched starts a watch of files, and returns what it says and what hurries it.
func watched(t *testing.T, files ...string) (changes <-chan bool, hurry chan<- os.Signal) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	said, hurried := make(chan bool, 100), make(chan os.Signal, 1)
	since := reload.StateOf(files)
	var running sync.WaitGroup
	running.Go(func() {
		reload.Watch(ctx, files, since, hurried, slog.New(slog.DiscardHandler), func(h bool) { said <- h })
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	// The first look proves that the watch has begun.
	hurried <- syscall.SIGHUP
	await(t, said, true)
	return said, hurried
}

func await(t *testing.T, changes <-chan bool, hurried bool) {
	t.Helper()
	select {
	case h := <-changes:
		require.Equal(t, hurried, h)
	case <-time.After(patience):
		t.Fatal("the change isn't noticed")
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

func TestEveryWayToChangeAFileIsNoticed(t *testing.T) {
	t.Parallel()
	t.Run("a write in place", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "config.toml")
		write(t, file, "a")
		changes, _ := watched(t, file)
		write(t, file, "b")
		await(t, changes, false)
		write(t, file, "c")
		await(t, changes, false)
	})
	t.Run("another file renamed over it, twice", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "config.toml")
		write(t, file, "a")
		changes, _ := watched(t, file)
		for _, text := range []string{"b", "c"} {
			write(t, file+".new", text)
			require.NoError(t, os.Rename(file+".new", file))
			await(t, changes, false)
		}
	})
	t.Run("a ConfigMap's volume swaps its link, twice", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		version := func(name, text string) {
			require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o700))
			write(t, filepath.Join(dir, name, "config.toml"), text)
			require.NoError(t, os.Symlink(name, filepath.Join(dir, "..data_tmp")))
			require.NoError(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
		}
		version("..1", "a")
		file := filepath.Join(dir, "config.toml")
		require.NoError(t, os.Symlink(filepath.Join("..data", "config.toml"), file))
		changes, _ := watched(t, file)
		for name, text := range map[string]string{"..2": "b", "..3": "c"} {
			version(name, text)
			await(t, changes, false)
		}
	})
	t.Run("a link elsewhere whose target is written", func(t *testing.T) {
		t.Parallel()
		target, file := filepath.Join(t.TempDir(), "real.toml"), filepath.Join(t.TempDir(), "config.toml")
		write(t, target, "a")
		require.NoError(t, os.Symlink(target, file))
		changes, _ := watched(t, file)
		write(t, target, "b")
		await(t, changes, false)
	})
	t.Run("the second of two files", func(t *testing.T) {
		t.Parallel()
		first, second := filepath.Join(t.TempDir(), "config.toml"), filepath.Join(t.TempDir(), "idle.toml")
		write(t, first, "a")
		write(t, second, "a")
		changes, _ := watched(t, first, second)
		write(t, second, "b")
		await(t, changes, false)
	})
	t.Run("it goes and comes back", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "config.toml")
		write(t, file, "a")
		changes, _ := watched(t, file)
		require.NoError(t, os.Remove(file))
		await(t, changes, false)
		write(t, file, "a")
		await(t, changes, false)
	})
}

func TestWhatChangesNothingIsNotSaid(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "config.toml")
	write(t, file, "a")
	changes, hurry := watched(t, file)
	write(t, filepath.Join(dir, "other"), "b")
	write(t, file, "a")
	hurry <- syscall.SIGHUP // said in any case, so it is the next thing that is said
	await(t, changes, true)
	write(t, file, "b")
	await(t, changes, false)
	require.Empty(t, changes)
}

func TestAChangeBeforeTheWatchBeganIsNoticed(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "config.toml")
	write(t, file, "a")
	since := reload.StateOf([]string{file})
	write(t, file, "b")
	said := make(chan bool, 1)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		reload.Watch(ctx, []string{file}, since, nil, slog.New(slog.DiscardHandler), func(h bool) { said <- h })
	})
	await(t, said, false)
	cancel()
	running.Wait()
}
