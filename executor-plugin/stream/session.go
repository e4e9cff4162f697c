package stream

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"idlecount.dev/idlecount/entrypoint/wire"
)

// session is one connection.
type session struct {
	*follower
	controls *controls
	opened   time.Time
	acked    int64
	live     bool // its hello was seen
}

// received is what the reading half of a session passes on.
type received struct {
	frame frame
	err   error
}

// connect makes one connection and follows the script over it. Its errors are a lostError or final.
func (f *follower) connect(ctx context.Context) (wire.Exit, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn, err := f.Open(ctx)
	if err != nil {
		return wire.Exit{}, &lostError{err}
	}
	defer conn.Close()
	s := &session{follower: f, controls: newControls(), opened: time.Now(), acked: f.offset}
	frames := make(chan received)
	opening := f.opening()
	var halves sync.WaitGroup
	halves.Go(func() { read(ctx, conn, frames) })
	halves.Go(func() { s.controls.write(ctx, conn, opening, f.Timing.Ping) })
	exit, err := s.loop(ctx, frames)
	if err == nil {
		s.controls.add(wire.Control{Ack: f.offset, Done: true})
		s.controls.flush(f.Timing.DoneDelivery)
	}
	cancel()
	_ = conn.Close()
	halves.Wait()
	return exit, err
}

// opening is what a session begins with: the header, and the script as long as it isn't known to run. A header without a
// script can only follow what runs, so a script that was seen can't be started a second time.
func (f *follower) opening() []byte {
	header := wire.RunHeader{Protocol: wire.Protocol, ID: f.script.ID, Offset: f.offset, Pings: true}
	var text []byte
	if !f.met {
		text = f.script.Text
		sum := sha256.Sum256(text)
		header.ScriptBytes, header.ScriptSHA256 = int64(len(text)), hex.EncodeToString(sum[:])
	}
	line, _ := json.Marshal(header) //nolint:errchkjson // no field of it can fail
	return slices.Concat(line, []byte{'\n'}, text)
}

// read passes frames on until the stream ends. Two buffers are enough: when the channel, which holds nothing, takes a
// frame, its reader is done with the one before.
func read(ctx context.Context, conn io.Reader, frames chan<- received) {
	var buffers [2][]byte
	for i := 0; ; i = 1 - i {
		f, err := readFrame(conn, &buffers[i])
		select {
		case frames <- received{f, err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

func (s *session) loop(ctx context.Context, frames <-chan received) (wire.Exit, error) {
	silence := time.NewTimer(s.Timing.Silence)
	defer silence.Stop()
	ack := time.NewTicker(s.Timing.AckAfter)
	defer ack.Stop()
	drained := s.drained()
	for {
		select {
		case r := <-frames:
			exit, err := s.take(r)
			if exit != nil || err != nil {
				return value(exit), err
			}
			silence.Reset(s.Timing.Silence)
		case <-silence.C:
			return wire.Exit{}, &lostError{fmt.Errorf("nothing was heard for %s", s.Timing.Silence)}
		case <-ack.C:
			s.ack()
		case grace := <-s.Cancel:
			s.cancel(grace)
			s.sendCancel()
		case <-s.giveUp:
			return wire.Exit{}, ErrCancelled
		case end := <-s.Ends:
			s.ends(end)
			drained = s.drained()
		case <-drained:
			return wire.Exit{}, errors.New(s.end.Reason)
		case <-ctx.Done():
			return wire.Exit{}, context.Cause(ctx)
		}
	}
}

// drained is when nothing more can come from a pod that ends; never for one that doesn't.
func (s *session) drained() <-chan time.Time {
	switch {
	case s.end == nil:
		return nil
	case s.end.Gone:
		return time.After(s.Timing.Drain)
	default:
		return time.After(s.end.Grace + s.Timing.Drain)
	}
}

// take acts on one frame. It returns an exit or an error where the session is over.
func (s *session) take(r received) (*wire.Exit, error) {
	if r.err != nil {
		return nil, s.broken(r.err)
	}
	if !s.live && r.frame.kind != wire.FrameHello && r.frame.kind != wire.FrameError {
		return nil, fmt.Errorf("%w: kind %q comes before the hello", errFrame, r.frame.kind)
	}
	if r.frame.kind != wire.FrameError { // which may be the word of a command that can't reach PID 1
		s.hear()
	}
	switch r.frame.kind {
	case wire.FrameHello:
		return nil, s.hello(r.frame)
	case wire.FrameOutput:
		return nil, s.output(r.frame.payload)
	case wire.FrameExit:
		exit, err := decode[wire.Exit](r.frame)
		if err == nil && exit.Offset != s.offset {
			err = &lostError{fmt.Errorf("%d bytes of output are missing", exit.Offset-s.offset)}
		}
		return &exit, err
	case wire.FrameError:
		failure, err := decode[wire.Failure](r.frame)
		switch {
		case err != nil:
			return nil, err
		case failure.Retry:
			return nil, &lostError{&AnswerError{failure.Message}}
		default:
			return nil, &refusedError{failure.Message}
		}
	default: // a ping
		return nil, nil //nolint:nilnil // nothing to say is an answer
	}
}

// broken tells a connection that ended from a stream that never was one of ours.
func (s *session) broken(err error) error {
	if errors.Is(err, errFrame) {
		return err
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("the stream ended before the script did")
	}
	return &lostError{err}
}

// hear notes a sign of life. What counts as a connection that works is one that brought output or lasted: one that only
// ever says hello must not be made again without a pause.
func (s *session) hear() {
	s.heard = time.Now()
	if time.Since(s.opened) > time.Second {
		s.failures = 0
	}
	if s.noticed {
		s.noticed = false
		s.say("connected to the script again, no output is lost")
	}
}

func (s *session) hello(f frame) error {
	hello, err := decode[wire.Hello](f)
	switch {
	case err != nil:
		return err
	case hello.Protocol != wire.Protocol:
		return fmt.Errorf("the pod's entrypoint speaks protocol %d, this driver %d", hello.Protocol, wire.Protocol)
	case hello.Offset != s.offset:
		return fmt.Errorf("output from byte %d on is asked for, the pod has it from %d on", s.offset, hello.Offset)
	case s.live:
		return fmt.Errorf("%w: a second hello", errFrame)
	case s.met && hello.Started:
		// PID 1 knew nothing of a run that was seen: it is another container than before.
		return errors.New("the container was replaced while the script ran in it")
	}
	s.live, s.met = true, true
	s.sendCancel()
	return nil
}

// sendCancel passes a cancel on as soon as there is somebody to hear it.
func (s *session) sendCancel() {
	if s.live && s.grace != nil {
		s.controls.add(wire.Control{Cancel: s.grace.String()})
	}
}

func (s *session) output(payload []byte) error {
	n, err := s.Output.Write(payload)
	s.offset += int64(n)
	if err != nil {
		return fmt.Errorf("write the script's output: %w", err)
	}
	if n > 0 {
		s.lastByte = payload[n-1]
		s.failures = 0
	}
	if s.offset-s.acked >= s.Timing.AckBytes {
		s.ack()
	}
	return nil
}

func (s *session) ack() {
	if s.offset > s.acked {
		s.acked = s.offset
		s.controls.add(wire.Control{Ack: s.offset})
	}
}

// value is what p points to, or nothing.
func value(p *wire.Exit) wire.Exit {
	if p == nil {
		return wire.Exit{}
	}
	return *p
}

// controls is the writing half of a session: what is to be said while a write is under way is merged into one line.
type controls struct {
	mu      sync.Mutex
	pending wire.Control
	wake    chan struct{}
	written chan struct{} // closed when Done was sent, or nothing can be sent any more
}

func newControls() *controls {
	return &controls{wake: make(chan struct{}, 1), written: make(chan struct{})}
}

func (c *controls) add(control wire.Control) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending.Ack = max(c.pending.Ack, control.Ack)
	c.pending.Done = c.pending.Done || control.Done
	if control.Cancel != "" {
		c.pending.Cancel = control.Cancel
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *controls) next() *wire.Control {
	c.mu.Lock()
	defer c.mu.Unlock()
	control := c.pending
	c.pending = wire.Control{}
	return &control
}

// write sends the opening, then each control, and the signs of life that the header promised, also while the rest of the
// session waits for somebody to take output. An error needs no word: the reading half meets it too.
func (c *controls) write(ctx context.Context, conn io.Writer, opening []byte, every time.Duration) {
	defer close(c.written)
	if _, err := conn.Write(opening); err != nil {
		return
	}
	ping := time.NewTicker(every)
	defer ping.Stop()
	for {
		control := &wire.Control{}
		select {
		case <-ctx.Done():
			return
		case <-ping.C:
		case <-c.wake:
			control = c.next()
		}
		line, _ := json.Marshal(control) //nolint:errchkjson // no field of it can fail
		if _, err := conn.Write(append(line, '\n')); err != nil || control.Done {
			return
		}
	}
}

// flush waits until Done was sent, but not for long: the pod forgets a run by itself.
func (c *controls) flush(most time.Duration) {
	select {
	case <-c.written:
	case <-time.After(most):
	}
}
