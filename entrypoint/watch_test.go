//go:build linux

package main

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/entrypoint/claimfile"
	"idlecount.dev/idlecount/entrypoint/idle"
)

// shared is what the containers of a pod share, on the clock of the test.
type shared struct {
	mu      sync.Mutex
	claim   claimfile.Content
	touched time.Time
	reads   int
	full    bool // nothing can be written
}

func (s *shared) Read() (claimfile.Content, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	return s.claim, nil
}

func (s *shared) Expire() (claimfile.Content, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.full {
		return claimfile.Content{}, errors.New("no space left on device")
	}
	if s.claim.State == idle.Unclaimed {
		s.claim.State = idle.Expired
	}
	return s.claim, nil
}

func (s *shared) Touch() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.touched = time.Now()
	return nil
}

func (s *shared) Touched() (time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.touched.IsZero() {
		return time.Time{}, fs.ErrNotExist
	}
	return s.touched, nil
}

func (s *shared) setClaim(job string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claim = claimfile.Content{State: idle.Claimed, Job: job}
}

// waiting is a watch and what it came to, and when.
type waiting struct {
	*watch
	action chan idle.Action
	at     time.Time
}

func begin(ctx context.Context, files agreement, idleTime time.Duration) *waiting {
	limits := idle.Limits{Idle: idleTime, Abandon: 8 * time.Minute}
	w := &waiting{action: make(chan idle.Action, 1)}
	w.watch = newWatch(limits, files, func() bool { return true }, slog.New(slog.DiscardHandler))
	go func() {
		action := w.wait(ctx)
		w.at = time.Now()
		w.action <- action
	}()
	return w
}

func TestBothContainersExpireTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, files := time.Now(), &shared{}
		build := begin(t.Context(), files, 30*time.Minute)
		time.Sleep(time.Minute)
		helper := begin(t.Context(), files, 30*time.Minute)
		require.Equal(t, idle.End, <-build.action)
		require.Equal(t, 30*time.Minute, build.at.Sub(start))
		helper.poke() // as the one that expired does
		require.Equal(t, idle.End, <-helper.action)
		require.Equal(t, build.at, helper.at)
	})
}

func TestAnIdleWatchSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		files := &shared{}
		ctx, stop := context.WithCancel(t.Context())
		w := begin(ctx, files, 0)
		time.Sleep(1000 * time.Hour)
		stop()
		require.Equal(t, idle.Wait, <-w.action)
		require.Equal(t, 1, files.reads, "it looked once, at its start")
	})
}

func TestAClaimStopsTheIdleClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, files := time.Now(), &shared{}
		w := begin(t.Context(), files, 30*time.Minute)
		time.Sleep(29 * time.Minute)
		files.setClaim("1")
		w.poke()
		w.present(true)
		time.Sleep(2 * time.Hour)
		require.Empty(t, w.action)
		w.present(false)
		require.Equal(t, idle.Abandon, <-w.action)
		require.Equal(t, 2*time.Hour+29*time.Minute+8*time.Minute, w.at.Sub(start))
	})
}

// A claim whose poke got lost is found when the idle time is over, and counts from there.
func TestALostPokeCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, files := time.Now(), &shared{}
		w := begin(t.Context(), files, 30*time.Minute)
		time.Sleep(time.Minute)
		files.setClaim("1")
		require.Equal(t, idle.Abandon, <-w.action)
		require.Equal(t, 38*time.Minute, w.at.Sub(start))
	})
}

func TestADriverInTheOtherContainerIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		files := &shared{}
		files.setClaim("1")
		build, helper := begin(t.Context(), files, 0), begin(t.Context(), files, 0)
		build.present(true)
		time.Sleep(5 * time.Hour)
		require.Empty(t, helper.action)
		build.present(false)
		left := time.Now()
		for _, w := range []*waiting{build, helper} {
			require.Equal(t, idle.Abandon, <-w.action)
			require.LessOrEqual(t, w.at.Sub(left), 8*time.Minute+2*time.Minute)
		}
	})
}

// Short stages with gaps between them are one presence.
func TestAVisitBetweenTwoLooksCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		files := &shared{}
		files.setClaim("1")
		w := begin(t.Context(), files, 0)
		for range 20 {
			time.Sleep(7 * time.Minute)
			w.present(true)
			w.present(false)
		}
		synctest.Wait()
		require.Empty(t, w.action)
		last := time.Now()
		require.Equal(t, idle.Abandon, <-w.action)
		require.Equal(t, 8*time.Minute, w.at.Sub(last))
	})
}

func TestAPodThatCantExpireTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, files := time.Now(), &shared{full: true}
		w := begin(t.Context(), files, time.Minute)
		time.Sleep(time.Minute + 5*time.Second)
		files.mu.Lock()
		files.full = false
		files.mu.Unlock()
		require.Equal(t, idle.End, <-w.action)
		require.Equal(t, time.Minute+retryTime, w.at.Sub(start))
	})
}
