//go:build linux

package claimfile_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/entrypoint/claimfile"
	"idlecount.dev/idlecount/entrypoint/idle"
)

func folder(t *testing.T) claimfile.Dir {
	t.Helper()
	dir := claimfile.Dir(filepath.Join(t.TempDir(), "run"))
	require.NoError(t, dir.Make())
	return dir
}

func TestClaim(t *testing.T) {
	dir := folder(t)
	content, err := dir.Read()
	require.NoError(t, err)
	require.Equal(t, claimfile.Content{State: idle.Unclaimed}, content)

	mine := claimfile.Content{State: idle.Claimed, Job: "41"}
	for range 2 {
		content, err = dir.Claim("41", "")
		require.NoError(t, err)
		require.Equal(t, mine, content)
	}
	for _, faster := range []func() (claimfile.Content, error){func() (claimfile.Content, error) { return dir.Claim("42", "") }, dir.Expire, dir.Read} {
		content, err = faster()
		require.NoError(t, err)
		require.Equal(t, mine, content)
	}
	b, err := os.ReadFile(filepath.Join(string(dir), "claim"))
	require.NoError(t, err)
	require.Equal(t, "claimed 41\n", string(b))
}

func TestAClaimKeepsItsFirstKey(t *testing.T) {
	first, second := strings.Repeat("0a", 32), strings.Repeat("0b", 32)
	dir := folder(t)
	for _, key := range []string{first, second, ""} {
		content, err := dir.Claim("41", key)
		require.NoError(t, err)
		require.Equal(t, claimfile.Content{State: idle.Claimed, Job: "41", Key: first}, content)
	}
	dir = folder(t)
	for _, key := range []string{"", first} {
		content, err := dir.Claim("41", key)
		require.NoError(t, err)
		require.Equal(t, claimfile.Content{State: idle.Claimed, Job: "41"}, content)
	}
	for _, bad := range []string{"x", "0a", strings.ToUpper(first), first + "0", first[:50] + "\nclaimed 42  "} {
		_, err := folder(t).Claim("41", bad)
		require.ErrorContains(t, err, "hexadecimal digits", "%q", bad)
	}
}

func TestExpire(t *testing.T) {
	dir := folder(t)
	for _, act := range []func() (claimfile.Content, error){dir.Expire, dir.Expire, func() (claimfile.Content, error) { return dir.Claim("41", "") }} {
		content, err := act()
		require.NoError(t, err)
		require.Equal(t, claimfile.Content{State: idle.Expired}, content)
	}
}

func TestAClaimFileOfSomebodyElseIsAnErrorNotAClaim(t *testing.T) {
	for _, content := range []string{"", "claimed", "claimed ", "claimed a b", "claimed 1 xyz", "claimed a ", "claimed a 0a 0b", "claimed a " + strings.Repeat("0", 65), "expire", "expired\n\n", "\x00"} {
		dir := folder(t)
		require.NoError(t, os.WriteFile(filepath.Join(string(dir), "claim"), []byte(content), 0o644))
		_, err := dir.Read()
		require.ErrorContains(t, err, "something else wrote it", "%q", content)
		_, err = dir.Claim("41", "")
		require.Error(t, err, "%q", content)
	}
}

func TestCheckJob(t *testing.T) {
	for _, good := range []string{"1", "project-7_job.41", strings.Repeat("x", 256)} {
		require.NoError(t, claimfile.CheckJob(good))
	}
	for _, bad := range []string{"", "a b", "a\nclaimed b", "a\x00", strings.Repeat("x", 257)} {
		require.Error(t, claimfile.CheckJob(bad), "%q", bad)
	}
}

// A driver claims while the idle timers of both containers end, and while a second driver does the same.
func TestOneWinsARace(t *testing.T) {
	wins := map[idle.Claim]int{}
	for range 300 {
		dir := folder(t)
		const claimers, timers = 4, 2
		seen := make([]claimfile.Content, claimers+timers)
		var ready, done sync.WaitGroup
		ready.Add(1)
		for i := range seen {
			done.Go(func() {
				ready.Wait()
				var err error
				if i < claimers {
					seen[i], err = dir.Claim(fmt.Sprint(i), "")
				} else {
					seen[i], err = dir.Expire()
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		ready.Done()
		done.Wait()
		for _, other := range seen[1:] {
			require.Equal(t, seen[0], other, "two won: %v", seen)
		}
		wins[seen[0].State]++
		names, err := os.ReadDir(string(dir))
		require.NoError(t, err)
		require.Len(t, names, 2, "claim and attached, nothing temporary: %v", names)
	}
	require.Zero(t, wins[idle.Unclaimed])
	t.Logf("claimed %d times, expired %d times", wins[idle.Claimed], wins[idle.Expired])
}

func TestTouch(t *testing.T) {
	dir := folder(t)
	_, err := dir.Touched()
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, dir.Touch())
	path := filepath.Join(string(dir), "attached")
	past := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(path, past, past))
	require.NoError(t, dir.Touch())
	at, err := dir.Touched()
	require.NoError(t, err)
	require.Less(t, time.Since(at), time.Minute)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o666), info.Mode().Perm(), "a container with another user touches it too")
}

func TestTheFolderIsForEverybodyAndSticky(t *testing.T) {
	dir := folder(t)
	require.NoError(t, dir.Make(), "a second time")
	info, err := os.Stat(string(dir))
	require.NoError(t, err)
	require.Equal(t, os.ModeDir|os.ModeSticky|0o777, info.Mode())
}

func TestNoFolderIsSaid(t *testing.T) {
	dir := claimfile.Dir(filepath.Join(t.TempDir(), "missing"))
	_, err := dir.Claim("1", "")
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = dir.Expire()
	require.ErrorIs(t, err, os.ErrNotExist)
}
