//go:build linux

// Package claimfile owns the two files by which the containers of a pod agree: the claim, created once and never changed,
// and the file that is touched while a driver is attached. They lie in an emptyDir, and the containers may run as different
// users, so nothing here needs to own what another user made. It refuses to decide: when to claim, expire or touch is
// the caller's matter.
package claimfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"idlecount.dev/idlecount/entrypoint/idle"
	"idlecount.dev/idlecount/entrypoint/wire"
)

const (
	claimedWord = "claimed"
	expiredWord = "expired"
	maxJob      = 256
	keyLength   = 64
)

// Dir is the folder of the files: wire.RunDir in a pod.
type Dir string

// Content is what the claim file says; Job is set where State is idle.Claimed, and Key may be: the public key of the driver
// that claimed, in hexadecimal digits.
type Content struct {
	State idle.Claim
	Job   string
	Key   string
}

// Make creates the folder so that every user can add files and none can take away another's.
func (d Dir) Make() error {
	err := os.Mkdir(string(d), 0o777)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("make the folder that the containers share: %w", err)
	}
	// The mode given to mkdir is cut by the umask.
	return os.Chmod(string(d), 0o777|fs.ModeSticky)
}

// Claim creates the claim for a job unless there is one, and returns what the file says then: another job, or that the
// pod expired, where somebody was faster. The same job may claim again, but the key stays the first one. No key is "".
func (d Dir) Claim(job, key string) (Content, error) {
	if err := errors.Join(CheckJob(job), checkKey(key)); err != nil {
		return Content{}, err
	}
	// Before the claim: whoever sees the claim must not find the mark of a driver missing.
	if err := d.Touch(); err != nil {
		return Content{}, err
	}
	line := claimedWord + " " + job
	if key != "" {
		line += " " + key
	}
	return d.create(line + "\n")
}

// Expire creates the claim file as expired unless there is one, and returns what the file says then.
func (d Dir) Expire() (Content, error) { return d.create(expiredWord + "\n") }

// CheckJob says what is wrong with the id of a job that is to stand in the file.
func CheckJob(job string) error {
	if job == "" || len(job) > maxJob || strings.ContainsFunc(job, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }) {
		return fmt.Errorf("job id %q: want 1 to %d printable characters without spaces", job, maxJob)
	}
	return nil
}

func checkKey(key string) error {
	if key != "" && (len(key) != keyLength || strings.Trim(key, "0123456789abcdef") != "") {
		return fmt.Errorf("key %q: want %d hexadecimal digits", key, keyLength)
	}
	return nil
}

// create links a complete file into place: readers see nothing or all of it, and only the first link succeeds.
func (d Dir) create(content string) (Content, error) {
	temp, err := os.CreateTemp(string(d), ".claim-*")
	if err != nil {
		return Content{}, fmt.Errorf("create the claim file: %w", err)
	}
	defer os.Remove(temp.Name())
	_, err = temp.WriteString(content)
	err = errors.Join(err, temp.Chmod(0o444), temp.Close())
	if err != nil {
		return Content{}, fmt.Errorf("write the claim file: %w", err)
	}
	if err := os.Link(temp.Name(), d.claim()); err != nil && !errors.Is(err, fs.ErrExist) {
		return Content{}, fmt.Errorf("create the claim file: %w", err)
	}
	return d.Read()
}

// Read returns what the claim file says; State is idle.Unclaimed while there is none.
func (d Dir) Read() (Content, error) {
	b, err := os.ReadFile(d.claim())
	if errors.Is(err, fs.ErrNotExist) {
		return Content{State: idle.Unclaimed}, nil
	}
	if err != nil {
		return Content{}, fmt.Errorf("read the claim file: %w", err)
	}
	line := strings.TrimSuffix(string(b), "\n")
	if line == expiredWord {
		return Content{State: idle.Expired}, nil
	}
	if word, rest, _ := strings.Cut(line, " "); word == claimedWord {
		job, key, keyed := strings.Cut(rest, " ")
		if CheckJob(job) == nil && checkKey(key) == nil && keyed == (key != "") {
			return Content{State: idle.Claimed, Job: job, Key: key}, nil
		}
	}
	return Content{}, fmt.Errorf("the claim file %s says %.100q, which is neither %q nor %q with a job id and maybe a key; something else wrote it",
		d.claim(), line, expiredWord, claimedWord)
}

// Touch marks that a driver is attached now.
func (d Dir) Touch() error {
	for range 3 {
		// Without an explicit time the right to write suffices; a driver in the other container may own the file.
		now := []unix.Timespec{{Nsec: unix.UTIME_NOW}, {Nsec: unix.UTIME_NOW}}
		err := unix.UtimesNanoAt(unix.AT_FDCWD, d.attached(), now, 0)
		if err == nil {
			return nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("touch %s: %w", d.attached(), err)
		}
		// O_EXCL: kernels refuse to open another user's file in a sticky folder with O_CREAT alone.
		file, err := os.OpenFile(d.attached(), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("touch: %w", err)
		}
		return errors.Join(file.Chmod(0o666), file.Close())
	}
	return fmt.Errorf("touch %s: something creates and removes it all the time", d.attached())
}

// Touched is when Touch was called last, by the clock of the file system. The error is fs.ErrNotExist where it never was.
func (d Dir) Touched() (time.Time, error) {
	info, err := os.Stat(d.attached())
	if err != nil {
		return time.Time{}, err
	}
	return info.ModTime(), nil
}

func (d Dir) claim() string    { return filepath.Join(string(d), filepath.Base(wire.ClaimFile)) }
func (d Dir) attached() string { return filepath.Join(string(d), filepath.Base(wire.AttachedFile)) }
