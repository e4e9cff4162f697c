//go:build linux

package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/entrypoint/wire"
)

// session is an `entrypoint run`, or a connection to a port, and what a driver does with it.
type session struct {
	t      testing.TB
	cmd    *exec.Cmd // nil over a port
	conn   net.Conn  // nil otherwise
	in     io.WriteCloser
	stdout io.Reader
	out    *bufio.Reader
	stderr *lockedBuffer
	hello  wire.Hello
	offset int64
}

func header(id, script string, offset int64) wire.RunHeader {
	sum := sha256.Sum256([]byte(script))
	return wire.RunHeader{Protocol: wire.Protocol, ID: id, Offset: offset, ScriptBytes: int64(len(script)), ScriptSHA256: hex.EncodeToString(sum[:])}
}

// open starts the command and sends nothing.
func (p *pod) open(t testing.TB, role wire.Role, id string) *session {
	t.Helper()
	s := &session{t: t, cmd: p.command(t, role, wire.CommandRun, "--id", id), stderr: &lockedBuffer{}}
	s.cmd.Stderr = s.stderr
	var err error
	s.in, err = s.cmd.StdinPipe()
	require.NoError(t, err)
	s.stdout, err = s.cmd.StdoutPipe()
	require.NoError(t, err)
	s.out = bufio.NewReaderSize(s.stdout, 64<<10)
	require.NoError(t, s.cmd.Start())
	t.Cleanup(s.cut)
	return s
}

// begin starts or follows a script, and takes the hello.
func (p *pod) begin(t testing.TB, role wire.Role, id, script string, offset int64) *session {
	t.Helper()
	s := p.open(t, role, id)
	s.send(header(id, script, offset), script)
	s.greet(offset)
	return s
}

func (s *session) send(h wire.RunHeader, script string) {
	s.t.Helper()
	line, err := json.Marshal(h)
	require.NoError(s.t, err)
	_, err = io.WriteString(s.in, string(line)+"\n"+script)
	require.NoError(s.t, err)
}

func (s *session) greet(offset int64) {
	s.t.Helper()
	kind, payload := s.frame()
	require.Equal(s.t, string(wire.FrameHello), string(kind), "%s %s", payload, s.stderr.String())
	require.NoError(s.t, json.Unmarshal(payload, &s.hello))
	require.Equal(s.t, offset, s.hello.Offset)
	s.offset = offset
}

// try reads a frame; an error is the end of the stream.
func (s *session) try() (byte, []byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(s.out, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > wire.MaxFrame {
		return 0, nil, fmt.Errorf("a frame of %d bytes", n)
	}
	payload := make([]byte, n)
	_, err := io.ReadFull(s.out, payload)
	return head[0], payload, err
}

// frame reads a frame that isn't a ping.
func (s *session) frame() (byte, []byte) {
	s.t.Helper()
	for {
		kind, payload, err := s.try()
		require.NoError(s.t, err, "stderr: %s", s.stderr)
		if kind != wire.FramePing {
			return kind, payload
		}
	}
}

func (s *session) control(c wire.Control) {
	s.t.Helper()
	line, err := json.Marshal(c)
	require.NoError(s.t, err)
	_, err = s.in.Write(append(line, '\n'))
	require.NoError(s.t, err)
}

// until reads output, acknowledging it, until it ends with the text.
func (s *session) until(text string) string {
	s.t.Helper()
	var all bytes.Buffer
	for !strings.HasSuffix(all.String(), text) {
		kind, payload := s.frame()
		require.Equal(s.t, string(wire.FrameOutput), string(kind), "%s after %q", payload, all.String())
		all.Write(payload)
		s.offset += int64(len(payload))
		s.control(wire.Control{Ack: s.offset})
	}
	return all.String()
}

// rest reads and acknowledges everything up to the exit.
func (s *session) rest() (string, wire.Exit) {
	s.t.Helper()
	var all bytes.Buffer
	for {
		kind, payload := s.frame()
		switch kind {
		case wire.FrameOutput:
			all.Write(payload)
			s.offset += int64(len(payload))
			s.control(wire.Control{Ack: s.offset})
		case wire.FrameExit:
			var exit wire.Exit
			require.NoError(s.t, json.Unmarshal(payload, &exit))
			require.Equal(s.t, s.offset, exit.Offset)
			s.control(wire.Control{Done: true})
			return all.String(), exit
		default:
			require.FailNow(s.t, "unexpected frame", "%q %s", kind, payload)
		}
	}
}

// failure expects the run to be refused or given up.
func (s *session) failure() wire.Failure {
	s.t.Helper()
	for {
		kind, payload := s.frame()
		if kind == wire.FrameOutput || kind == wire.FrameHello {
			continue
		}
		require.Equal(s.t, string(wire.FrameError), string(kind), "%s", payload)
		var failure wire.Failure
		require.NoError(s.t, json.Unmarshal(payload, &failure))
		return failure
	}
}

// cut ends the session like a broken connection.
func (s *session) cut() {
	if s.conn != nil {
		_ = s.conn.Close()
		return
	}
	_ = s.cmd.Process.Kill()
	_ = s.in.Close() // in a container the killed process is not the command itself
	_ = s.cmd.Wait()
}

// script runs one from beginning to end.
func (p *pod) script(t testing.TB, role wire.Role, id, script string) (string, wire.Exit) {
	t.Helper()
	s := p.begin(t, role, id, script, 0)
	require.True(t, s.hello.Started)
	defer s.cut()
	return s.rest()
}
