//go:build linux

// Package attach is PID 1's side of its socket and of its port: it lets in only its own container by the one and only the
// job's driver by the other, receives scripts, and sends a run's output to whichever driver is attached. It owns
// connections, and nothing that outlives them: runs, their output and their exit codes belong to package script.
package attach

import (
	"bufio"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"
	"unicode"

	"idlecount.dev/idlecount/entrypoint/peer"
	"idlecount.dev/idlecount/entrypoint/script"
	"idlecount.dev/idlecount/entrypoint/wire"
)

const (
	// lineSize bounds a header or a line of control, and is the size of a connection's reading buffer.
	lineSize = 16 << 10
	maxID    = 256
	// receiveTime is how long nothing may come before a script is complete.
	receiveTime = time.Minute
)

// Server answers connections. Its functions are called from many goroutines.
type Server struct {
	Runner *script.Runner
	Log    *slog.Logger
	// Poked is called for every connection to the socket, also one from another container that is then refused.
	Poked func()
	// Driver is the key of the driver that the pod was claimed by, nil where there is none.
	Driver func() (ed25519.PublicKey, error)
	// Claimed is true where the pod belongs to a job.
	Claimed func() (bool, error)
	// Present is called with true when a driver attached, with false when it is gone.
	Present func(attached bool)

	door door
}

// duplex is a connection of which either direction can end first.
type duplex interface {
	net.Conn
	CloseWrite() error
}

// Serve accepts connections until the listener is closed.
func (s *Server) Serve(listener *net.UnixListener) {
	for {
		conn, err := listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// Out of descriptors or memory: what the container has is spent by the job, and may come back.
			s.Log.Warn("accept a connection", "error", err)
			time.Sleep(100 * time.Millisecond)
			continue
		}
		go s.handle(conn)
	}
}

func (s *Server) handle(conn *net.UnixConn) {
	defer conn.Close()
	s.Poked()
	if peer.Check(conn) != nil {
		// The other container's way to say: look at the claim. Nothing is read of it, and an answer of this size never waits.
		s.answer(conn, s.openDoor())
		return
	}
	s.obey(conn)
}

// obey does what a connection asks for that has shown whose it is.
func (s *Server) obey(conn duplex) {
	patience := &patience{conn: conn, limit: receiveTime}
	reader := bufio.NewReaderSize(patience, lineSize)
	var request wire.Request
	if err := readLine(reader, &request); err != nil {
		return // nobody is told: a poke from this container ends here as well
	}
	switch request.Command {
	case wire.CommandRun:
		s.run(conn, reader, patience, request.ID)
	case wire.CommandCancel:
		s.answer(conn, s.cancel(request))
	case wire.RequestStream:
		s.answer(conn, s.openDoor())
	default:
		s.answer(conn, wire.Failure{Message: fmt.Sprintf("PID 1 doesn't know the command %q", request.Command)})
	}
}

func (s *Server) cancel(request wire.Request) wire.Failure {
	if err := checkID(request.ID); err != nil {
		return wire.Failure{Message: err.Error()}
	}
	s.Runner.Cancel(request.ID, request.Grace)
	return wire.Failure{}
}

func (s *Server) answer(conn net.Conn, answer any) {
	_ = json.NewEncoder(conn).Encode(answer) // one who has left needs none
}

// run is one attachment, from its header to its end.
func (s *Server) run(conn duplex, reader *bufio.Reader, patience *patience, id string) {
	header, attachment, failure := s.admit(reader, id)
	if failure != nil {
		s.refuse(conn, failure)
		return
	}
	s.Present(true)
	defer s.Present(false)
	patience.limit = 0
	if header.Pings {
		patience.limit = silence
	}
	f := &follower{conn: conn, run: attachment.Run, evicted: make(chan struct{}), heard: make(chan error, 1)}
	release, ok := attachment.Run.Sit(attachment.Number, f.leave)
	if !ok {
		s.refuse(conn, &wire.Failure{Message: "script " + id + ": " + evictedMessage})
		return
	}
	defer release()
	f.follow(reader, header.Offset, attachment.Started)
}

// refuse says why, if there is somebody to hear it. What the other side still sends is read, or the answer would be lost
// with the connection.
func (s *Server) refuse(conn duplex, failure *wire.Failure) {
	if WriteMessage(conn, wire.FrameError, failure) == nil && conn.CloseWrite() == nil {
		_ = conn.SetReadDeadline(time.Now().Add(receiveTime))
		_, _ = io.Copy(io.Discard, conn)
	}
}

// admit reads a header and its script, and starts the script or finds its run. The pod's claim is asked for last, so that
// an idle timer that ends meanwhile is noticed.
func (s *Server) admit(reader *bufio.Reader, id string) (wire.RunHeader, script.Attachment, *wire.Failure) {
	var header wire.RunHeader
	refuse := func(again bool, err error) (wire.RunHeader, script.Attachment, *wire.Failure) {
		return header, script.Attachment{}, &wire.Failure{Message: err.Error(), Retry: again}
	}
	if err := readLine(reader, &header); err != nil {
		return refuse(true, fmt.Errorf("read the header of the run: %w", err))
	}
	if err := checkHeader(header, id); err != nil {
		return refuse(false, err)
	}
	text, err := receive(reader, header)
	if err != nil {
		return refuse(true, err)
	}
	if text != nil {
		defer text.Close()
	}
	switch claimed, err := s.Claimed(); {
	case err != nil:
		return refuse(true, err)
	case !claimed:
		return refuse(false, errors.New("this pod is not claimed, run `entrypoint claim --job ID` in it first"))
	}
	attachment, failure := s.Runner.Admit(header, text)
	return header, attachment, failure
}

// receive returns nil for a header that brings no script: it can only follow what runs.
func receive(reader io.Reader, header wire.RunHeader) (*os.File, error) {
	if header.ScriptBytes == 0 && header.ScriptSHA256 == "" {
		return nil, nil
	}
	return script.Receive(reader, header.ScriptBytes, header.ScriptSHA256)
}

func checkHeader(header wire.RunHeader, id string) error {
	switch {
	case header.Protocol != wire.Protocol:
		return fmt.Errorf("the driver speaks protocol %d, this pod's entrypoint %d", header.Protocol, wire.Protocol)
	case header.ID != id:
		return fmt.Errorf("the header is of run %q, the command of run %q", header.ID, id)
	case header.Offset < 0:
		return fmt.Errorf("offset %d is negative", header.Offset)
	case header.ScriptBytes < 0 || header.ScriptBytes > wire.MaxScript:
		return fmt.Errorf("a script of %d bytes: at most %d are taken", header.ScriptBytes, wire.MaxScript)
	}
	return checkID(id)
}

func checkID(id string) error {
	if id == "" || len(id) > maxID || strings.ContainsFunc(id, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Errorf("run id %q: want 1 to %d printable characters", id, maxID)
	}
	return nil
}

// badLine is a line that no driver should send.
type badLine struct{ what string }

func (b *badLine) Error() string { return b.what }

// readLine reads one line of JSON, of bounded length. An error other than badLine is of the connection.
func readLine(reader *bufio.Reader, into any) error {
	line, err := reader.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return &badLine{fmt.Sprintf("a line is longer than %d bytes", lineSize)}
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(line, into); err != nil {
		return &badLine{fmt.Sprintf("a line is not the JSON it should be: %v", err)}
	}
	return nil
}

// patience is a connection that is given up when nothing comes for the limit; zero is without limit.
type patience struct {
	conn  net.Conn
	limit time.Duration
}

func (p *patience) Read(b []byte) (int, error) {
	var deadline time.Time
	if p.limit > 0 {
		deadline = time.Now().Add(p.limit)
	}
	if err := p.conn.SetReadDeadline(deadline); err != nil {
		return 0, err
	}
	return p.conn.Read(b)
}
