// Package spool keeps the output of one script between the pipe that it comes from and a driver that may be away. It is
// bounded, in order and loses nothing: a full spool makes its writer wait. One goroutine writes, one at a time reads; a
// slice that was handed out stays valid, whatever is acknowledged meanwhile.
package spool

import (
	"fmt"
	"sync"
)

// chunkSize is what one read of a pipe returns at most (a pipe's default capacity).
const chunkSize = 64 << 10

// Spool holds the bytes [Base, End) of an output.
type Spool struct {
	window int64
	data   chan struct{}
	room   chan struct{}

	mu     sync.Mutex
	chunks []chunk
	base   int64
	end    int64
}

// chunk is a stretch of output; its bytes begin at start, its capacity is chunkSize.
type chunk struct {
	start int64
	bytes []byte
}

// New returns an empty spool that keeps up to window unacknowledged bytes.
func New(window int64) *Spool {
	return &Spool{window: window, data: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

// Data receives after bytes were committed, at least once after the latest.
func (s *Spool) Data() <-chan struct{} { return s.data }

// Room receives after bytes were acknowledged, at least once after the latest.
func (s *Spool) Room() <-chan struct{} { return s.room }

// Base is the first offset that is still kept, all before it was acknowledged; End is the length of the output so far.
func (s *Spool) Base() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.base
}

// End is the length of the output so far.
func (s *Spool) End() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end
}

// Full is true while Reserve would return nothing. Only Ack changes that.
func (s *Spool) Full() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end-s.base >= s.window
}

// Reserve returns memory for up to limit bytes that follow End, empty if the spool is full. Commit must follow.
func (s *Spool) Reserve(limit int) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	limit = min(limit, int(s.window-(s.end-s.base)))
	if limit <= 0 {
		return nil
	}
	if n := len(s.chunks); n == 0 || len(s.chunks[n-1].bytes) == chunkSize {
		s.chunks = append(s.chunks, chunk{start: s.end, bytes: make([]byte, 0, chunkSize)})
	}
	last := s.chunks[len(s.chunks)-1].bytes
	return last[len(last):min(cap(last), len(last)+limit)]
}

// Commit adds the first n bytes of what Reserve returned to the output.
func (s *Spool) Commit(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n <= 0 {
		return
	}
	last := &s.chunks[len(s.chunks)-1]
	last.bytes = last.bytes[:len(last.bytes)+n]
	s.end += int64(n)
	notify(s.data)
}

// From returns bytes of the output that begin at an offset in [Base, End]: as many as lie together and at most limit,
// none at End.
func (s *Spool) From(offset int64, limit int) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.check(offset); err != nil {
		return nil, err
	}
	for _, c := range s.chunks {
		if at := offset - c.start; at < int64(len(c.bytes)) {
			return c.bytes[at:min(len(c.bytes), int(at)+limit)], nil
		}
	}
	return nil, nil
}

// Ack drops all before offset. An offset before Base is an old news and no error.
func (s *Spool) Ack(offset int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if offset <= s.base {
		return nil
	}
	if err := s.check(offset); err != nil {
		return err
	}
	s.base = offset
	// A chunk that isn't full stays: the writer may be reading into it at this moment, and goes on with it.
	drop := 0
	for drop < len(s.chunks) && len(s.chunks[drop].bytes) == chunkSize && s.chunks[drop].start+chunkSize <= offset {
		drop++
	}
	if drop > 0 {
		kept := copy(s.chunks, s.chunks[drop:])
		clear(s.chunks[kept:])
		s.chunks = s.chunks[:kept]
	}
	notify(s.room)
	return nil
}

func (s *Spool) check(offset int64) error {
	switch {
	case offset < s.base:
		return fmt.Errorf("output before offset %d was acknowledged and is gone, offset %d was asked for", s.base, offset)
	case offset > s.end:
		return fmt.Errorf("there are %d bytes of output, offset %d was asked for", s.end, offset)
	}
	return nil
}

// notify leaves one token: whoever waits looks at the state again, so more would say nothing.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
