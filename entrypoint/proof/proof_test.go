package proof_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/entrypoint/proof"
)

func newKey(t *testing.T) ed25519.PrivateKey {
	t.Helper()
	key, err := proof.NewKey()
	require.NoError(t, err)
	return key
}

// noted is a connection whose bytes, each way, are kept.
type noted struct {
	net.Conn
	read, written bytes.Buffer
}

func (n *noted) Read(p []byte) (int, error) {
	i, err := n.Conn.Read(p)
	n.read.Write(p[:i])
	return i, err
}

func (n *noted) Write(p []byte) (int, error) {
	n.written.Write(p)
	return n.Conn.Write(p)
}

// meet lets two ends meet; an end that fails hangs up.
func meet(driver, pid1 func(conn net.Conn) error) (driverErr, pid1Err error) {
	a, b := net.Pipe()
	done := make(chan error)
	go func() {
		err := pid1(b)
		if err != nil {
			b.Close()
		}
		done <- err
	}()
	driverErr = driver(a)
	if driverErr != nil {
		a.Close()
	}
	return driverErr, <-done
}

func TestWhoIsLetIn(t *testing.T) {
	driver, pid1, other := newKey(t), newKey(t), newKey(t)
	cases := map[string]struct {
		driverHas  ed25519.PrivateKey
		driverSeek ed25519.PrivateKey
		pid1Has    ed25519.PrivateKey
		pid1Seek   ed25519.PrivateKey
		driverErr  error // what the driver finds; where it finds nothing it has ended before PID 1 decides
		pid1Err    error
	}{
		"both are who they should be":                {driver, pid1, pid1, driver, nil, nil},
		"a driver with another key":                  {other, pid1, pid1, driver, proof.ErrOther, io.EOF},
		"a driver that doesn't care who PID 1 seeks": {other, pid1, pid1, other, nil, nil},
		"a PID 1 with another key":                   {driver, pid1, other, driver, proof.ErrOther, io.EOF},
		"the PID 1 of the other container":           {driver, other, pid1, driver, proof.ErrOther, io.EOF},
		"a PID 1 that has the driver's own key":      {driver, pid1, driver, driver, proof.ErrOther, io.EOF},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			driverErr, pid1Err := meet(
				func(conn net.Conn) error { return proof.Driver(conn, c.driverHas, proof.Public(c.driverSeek)) },
				func(conn net.Conn) error { return proof.PID1(conn, c.pid1Has, proof.Public(c.pid1Seek)) })
			require.ErrorIs(t, driverErr, c.driverErr)
			require.ErrorIs(t, pid1Err, c.pid1Err)
		})
	}
}

// Somebody who doesn't check what PID 1 says, and has no key, gets no further than PID 1's word.
func TestAJobThatPosesAsTheDriver(t *testing.T) {
	driver, pid1, other := newKey(t), newKey(t), newKey(t)
	record := &noted{}
	driverErr, pid1Err := meet(func(conn net.Conn) error {
		record.Conn = conn
		return proof.Driver(record, driver, proof.Public(pid1))
	}, func(conn net.Conn) error { return proof.PID1(conn, pid1, proof.Public(driver)) })
	require.NoError(t, errors.Join(driverErr, pid1Err))
	sent, got := record.written.Bytes(), record.read.Bytes()
	require.Len(t, sent, 32+64)
	require.Len(t, got, 32+64)

	junk := make([]byte, 64)
	_, _ = rand.Read(junk)
	for sentence, signature := range map[string][]byte{
		"a replay of the driver's words":     sent[32:],
		"PID 1's own signature, given back":  nil,
		"noise":                              junk,
		"a signature by another key, of all": ed25519.Sign(other, sent),
	} {
		t.Run(sentence, func(t *testing.T) {
			_, err := meet(func(conn net.Conn) error {
				if _, err := conn.Write(sent[:32]); err != nil {
					return err
				}
				answer := make([]byte, 96)
				if _, err := io.ReadFull(conn, answer); err != nil {
					return err
				}
				require.NotEqual(t, got, answer, "each connection has a nonce of its own")
				if signature == nil {
					signature = answer[32:]
				}
				_, err := conn.Write(signature)
				return err
			}, func(conn net.Conn) error { return proof.PID1(conn, pid1, proof.Public(driver)) })
			require.ErrorIs(t, err, proof.ErrOther)
		})
	}
	t.Run("a replay of PID 1's words, to the driver", func(t *testing.T) {
		err, _ := meet(func(conn net.Conn) error { return proof.Driver(conn, driver, proof.Public(pid1)) }, func(conn net.Conn) error {
			_, err := io.ReadFull(conn, make([]byte, 32))
			return errors.Join(err, func() error { _, err := conn.Write(got); return err }())
		})
		require.ErrorIs(t, err, proof.ErrOther)
	})
}

// Every byte of a proof counts.
func TestAnyChangeOnTheWayIsNoticed(t *testing.T) {
	driver, pid1 := newKey(t), newKey(t)
	for i := range 2 * 96 {
		driverErr, pid1Err := meet(func(conn net.Conn) error {
			return proof.Driver(&flipped{conn, i, i - 96}, driver, proof.Public(pid1))
		}, func(conn net.Conn) error { return proof.PID1(conn, pid1, proof.Public(driver)) })
		require.ErrorIs(t, errors.Join(driverErr, pid1Err), proof.ErrOther, "byte %d", i)
	}
}

// flipped changes one byte, counted each way.
type flipped struct {
	io.ReadWriter
	write, read int
}

func (f *flipped) Write(p []byte) (int, error) {
	changed := bytes.Clone(p)
	if f.write >= 0 && f.write < len(p) {
		changed[f.write] ^= 1
	}
	f.write -= len(p)
	return f.ReadWriter.Write(changed)
}

func (f *flipped) Read(p []byte) (int, error) {
	n, err := f.ReadWriter.Read(p)
	if f.read >= 0 && f.read < n {
		p[f.read] ^= 1
	}
	f.read -= n
	return n, err
}

func TestAConnectionThatEndsIsNoProof(t *testing.T) {
	key := newKey(t)
	for _, conn := range []io.Reader{bytes.NewReader(nil), bytes.NewReader(make([]byte, 31)), bytes.NewReader(make([]byte, 95)), iotest.ErrReader(io.ErrClosedPipe)} {
		both := struct {
			io.Reader
			io.Writer
		}{conn, io.Discard}
		require.Error(t, proof.PID1(both, key, proof.Public(key)))
		require.Error(t, proof.Driver(both, key, proof.Public(key)))
	}
}

func TestKeysAsText(t *testing.T) {
	key := proof.Public(newKey(t))
	text := proof.Text(key)
	require.Len(t, text, 64)
	parsed, err := proof.Parse(text)
	require.NoError(t, err)
	require.Equal(t, key, parsed)
	for _, bad := range []string{"", text[:62], text + "00", "zz" + text[2:]} {
		_, err := proof.Parse(bad)
		require.ErrorContains(t, err, "want 64 hexadecimal digits", "%q", bad)
	}
}
