//go:build linux

package script

import (
	"sync"
	"time"
)

// seat lets one driver at a time follow a run. A later one takes over from an earlier: the earlier may be half dead.
type seat struct {
	mu     sync.Mutex
	holder *holder
	last   uint64 // the number of the latest who asked
	shut   bool
}

type holder struct {
	leave func()
	left  chan struct{}
}

// Sit gives the seat to the attachment with that number (see Runner.Admit), after the one before has left; leave must make
// its holder call release soon. Where a later attachment was faster or the run's place was taken, ok is false.
func (r *Run) Sit(number uint64, leave func()) (release func(), ok bool) {
	s := &r.seat
	me := &holder{leave: leave, left: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = max(s.last, number)
	for {
		if s.shut || number < s.last {
			return nil, false
		}
		if s.holder == nil {
			break
		}
		s.evict()
	}
	s.holder = me
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.holder = nil
		close(me.left)
	}, true
}

// vacate makes the holder leave, and lets nobody sit again.
func (s *seat) vacate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shut = true
	for s.holder != nil {
		s.evict()
	}
}

// evict is called, and returns, with the lock held; meanwhile another may sit.
func (s *seat) evict() {
	old := s.holder
	s.mu.Unlock()
	old.leave()
	<-old.left
	s.mu.Lock()
}

// drain lets the holder, if any, leave by itself for so long, then makes it leave.
func (s *seat) drain(patience time.Duration) {
	s.mu.Lock()
	held := s.holder
	s.mu.Unlock()
	if held != nil {
		select {
		case <-held.left:
		case <-time.After(patience):
		}
	}
	s.vacate()
}
