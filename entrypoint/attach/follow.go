//go:build linux

package attach

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"idlecount.dev/idlecount/entrypoint/script"
	"idlecount.dev/idlecount/entrypoint/wire"
)

const (
	// silence is how long a driver that promised pings may say nothing, and how long one may take to take an exit.
	silence = 3 * wire.PingInterval
	// farewell is how long one that has to make way may take to hear so.
	farewell = 200 * time.Millisecond
	// frameSize is the most output in one frame; a ping or an exit waits for the frame before it.
	frameSize      = 256 << 10
	evictedMessage = "a later attachment or a later script took the place of this one"
)

// errDone is how a driver says that it has all it wanted.
var errDone = errors.New("done")

// follower sends a run's output and end to one connection, and obeys the lines that come from there.
type follower struct {
	conn    net.Conn
	run     *script.Run
	sent    atomic.Int64  // no byte from here on was sent
	evict   sync.Once     // guards evicted
	evicted chan struct{} // closed when another takes the seat
	heard   chan error    // why nothing more comes from the driver
}

// leave makes follow return soon, whatever the connection does.
func (f *follower) leave() {
	f.evict.Do(func() {
		close(f.evicted)
		_ = f.conn.SetWriteDeadline(time.Now().Add(farewell))
	})
}

// follow returns when the driver has gone, has all it wanted, or has to make way. No goroutine of it is left then.
func (f *follower) follow(reader *bufio.Reader, offset int64, started bool) {
	var listening sync.WaitGroup
	defer listening.Wait()
	defer f.conn.Close()
	if _, err := f.run.Out.From(offset, 0); err != nil {
		_ = WriteMessage(f.conn, wire.FrameError, wire.Failure{Message: err.Error()})
		return
	}
	if f.run.Out.Ack(offset) != nil {
		return // checked just now, and nobody else acknowledges
	}
	f.sent.Store(offset)
	hello := wire.Hello{Protocol: wire.Protocol, ID: f.run.ID, Offset: offset, Started: started, Shell: f.run.Shell}
	if WriteMessage(f.conn, wire.FrameHello, hello) != nil {
		return
	}
	listening.Go(func() { f.heard <- f.listen(reader) })
	if f.send(offset) == nil {
		f.part()
	}
}

// send sends output until the run has ended and everything is sent, then its end. An error is the end of the attachment.
func (f *follower) send(offset int64) error {
	ping := time.NewTicker(wire.PingInterval)
	defer ping.Stop()
	for {
		ended := isClosed(f.run.Ended()) // before the look at the output: after it there is no more
		output, err := f.run.Out.From(offset, frameSize)
		switch {
		case err != nil:
			return err
		case len(output) > 0:
			offset += int64(len(output))
			f.sent.Store(offset) // first: the driver may acknowledge before the write returns
			if err := writeFrame(f.conn, wire.FrameOutput, output); err != nil {
				return err
			}
			ping.Reset(wire.PingInterval)
			continue
		case ended:
			return f.sendEnd()
		}
		select {
		case <-f.run.Out.Data():
		case <-f.run.Ended():
		case <-ping.C:
			err = writeFrame(f.conn, wire.FramePing, nil)
		case <-f.evicted:
			return f.fail(errors.New(evictedMessage))
		case err = <-f.heard:
			if bad, ok := errors.AsType[*badLine](err); ok {
				return f.fail(bad)
			}
		}
		if err != nil {
			return err
		}
	}
}

func (f *follower) sendEnd() error {
	exit, failure := f.run.Result()
	if failure != nil {
		return WriteMessage(f.conn, wire.FrameError, failure)
	}
	return WriteMessage(f.conn, wire.FrameExit, exit)
}

// fail tells the driver an error and returns it.
func (f *follower) fail(err error) error {
	return errors.Join(err, WriteMessage(f.conn, wire.FrameError, wire.Failure{Message: err.Error()}))
}

// part waits until the driver has taken the end.
func (f *follower) part() {
	select {
	case <-f.heard: //nolint:errcheck // however it went
	case <-f.evicted:
	case <-time.After(silence):
	}
}

// listen obeys lines of control until the connection ends or the driver is done.
func (f *follower) listen(reader *bufio.Reader) error {
	for {
		var control wire.Control
		if err := readLine(reader, &control); err != nil {
			return err
		}
		if control.Ack > f.sent.Load() {
			return &badLine{fmt.Sprintf("offset %d was acknowledged, and %d bytes were sent", control.Ack, f.sent.Load())}
		}
		if err := f.run.Out.Ack(control.Ack); err != nil {
			return err
		}
		if control.Cancel != "" {
			grace, err := time.ParseDuration(control.Cancel)
			if err != nil || grace < 0 {
				return &badLine{fmt.Sprintf("cancel with grace %q: want a duration that is not negative", control.Cancel)}
			}
			f.run.End(script.Cancelled, grace)
		}
		if control.Done && isClosed(f.run.Ended()) {
			_ = f.run.Out.Ack(f.run.Out.End())
			return errDone
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
