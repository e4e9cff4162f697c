//go:build linux

package script

import (
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"idlecount.dev/idlecount/entrypoint/spool"
)

// lateTime is how long, after the shell has ended, output is still taken from processes that hold its pipe. Most scripts
// leave none and don't wait; `exec > >(tee log)` leaves one that is just writing the last lines.
const lateTime = 200 * time.Millisecond

// pump moves a script's output from its pipe to the spool. What the shell wrote before it ended is moved; what a process
// that outlives it writes to the same pipe later is read and thrown away, so that it neither blocks nor gets SIGPIPE.
type pump struct {
	pipe    *os.File
	out     *spool.Spool
	stop    chan struct{} // closed to give up what isn't in the spool yet
	drained chan struct{} // closed when the spool has all that it will get
}

func newPump(pipe *os.File, out *spool.Spool) *pump {
	return &pump{pipe: pipe, out: out, stop: make(chan struct{}), drained: make(chan struct{})}
}

// shellGone tells that the shell has ended: the output ends with the pipe, or a little later.
func (p *pump) shellGone() { _ = p.pipe.SetReadDeadline(time.Now().Add(lateTime)) }

func (p *pump) giveUp() { close(p.stop) }

// run returns when nobody holds the pipe any more.
func (p *pump) run() {
	defer p.pipe.Close()
	err := p.move()
	close(p.drained)
	if err == nil {
		_ = p.pipe.SetReadDeadline(time.Time{})
		_, _ = io.Copy(io.Discard, p.pipe)
	}
}

// move fills the spool until all is in it or was given up; an error is the end of the pipe. After the deadline that
// shellGone sets it takes what is in the pipe, and no more, whoever goes on writing.
func (p *pump) move() error {
	limit, last := readSize, false
	for limit > 0 {
		if p.out.Full() {
			select {
			case <-p.out.Room():
			case <-p.stop:
				return nil
			}
			continue
		}
		n, err := p.read(limit)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded) && !last:
			_ = p.pipe.SetReadDeadline(time.Time{})
			if limit, err = readable(p.pipe); err != nil {
				return err
			}
			last = true
		case err != nil:
			return err
		case last:
			limit -= n
		}
	}
	return nil
}

// readSize is more than a pipe holds.
const readSize = 1 << 20

// read waits until the pipe can be read, and only then takes memory for what is in it.
func (p *pump) read(limit int) (n int, err error) {
	raw, err := p.pipe.SyscallConn()
	if err != nil {
		return 0, err
	}
	var readErr error
	err = raw.Read(func(fd uintptr) bool {
		for {
			n, readErr = unix.Read(int(fd), p.out.Reserve(limit))
			p.out.Commit(n)
			if !errors.Is(readErr, unix.EINTR) {
				return !errors.Is(readErr, unix.EAGAIN)
			}
		}
	})
	switch {
	case err != nil:
		return 0, err
	case readErr != nil:
		return 0, readErr
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// readable is how many bytes a pipe holds.
func readable(pipe *os.File) (n int, err error) {
	raw, err := pipe.SyscallConn()
	if err != nil {
		return 0, err
	}
	var ioctlErr error
	err = raw.Control(func(fd uintptr) { n, ioctlErr = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	return n, errors.Join(err, ioctlErr)
}

// newPipe returns both ends of a pipe. Only the reading end waits in the runtime's poller: the other one becomes a
// script's standard output, which has to block.
func newPipe() (read, write *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, err
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return nil, nil, errors.Join(err, unix.Close(fds[0]), unix.Close(fds[1]))
	}
	return os.NewFile(uintptr(fds[0]), "output"), os.NewFile(uintptr(fds[1]), "output"), nil
}
