//go:build linux

package main

import (
	"bufio"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/entrypoint/proof"
	"idlecount.dev/idlecount/entrypoint/wire"
)

// claimWith claims the pod for a driver's key.
func (p *pod) claimWith(t testing.TB, role wire.Role, job string, key ed25519.PrivateKey) wire.ClaimResult {
	t.Helper()
	cmd := p.command(t, role, wire.CommandClaim, "--job", job, "--key", proof.Text(proof.Public(key)))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	var result wire.ClaimResult
	require.NoError(t, json.Unmarshal(out, &result))
	return result
}

// keyedPod is a pod whose build container serves a driver's key.
func keyedPod(t testing.TB, roles ...wire.Role) (*pod, ed25519.PrivateKey, map[wire.Role]wire.Stream) {
	t.Helper()
	p := newPod(t)
	for _, role := range roles {
		p.serve(t, role)
		eventually(t, func() bool { return exists(wire.Socket(p.runDir(), role)) })
	}
	key := newKey(t)
	result := p.claimWith(t, wire.Build, "1", key)
	require.Len(t, result.Streams, len(roles))
	return p, key, result.Streams
}

func newKey(t testing.TB) ed25519.PrivateKey {
	t.Helper()
	key, err := proof.NewKey()
	require.NoError(t, err)
	return key
}

func dialPort(t testing.TB, port uint16) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	return conn
}

// enter goes in as the driver does.
func enter(t testing.TB, to wire.Stream, key ed25519.PrivateKey, id string) *session {
	t.Helper()
	conn := dialPort(t, to.Port)
	pid1, err := proof.Parse(to.Key)
	require.NoError(t, err)
	require.NoError(t, proof.Driver(conn, key, pid1))
	require.NoError(t, json.NewEncoder(conn).Encode(wire.Request{Command: wire.CommandRun, ID: id}))
	return &session{t: t, conn: conn, in: conn, stdout: conn, out: bufio.NewReaderSize(conn, 64<<10), stderr: &lockedBuffer{}}
}

// nothing expects the other end to hang up without a word.
func nothing(t testing.TB, conn net.Conn) {
	t.Helper()
	all, _ := io.ReadAll(conn)
	require.Empty(t, all)
}

// A script goes on whichever way its driver comes back.
func TestScriptsOverAPort(t *testing.T) {
	p, key, streams := keyedPod(t, wire.Build, wire.Helper)
	for role, stream := range streams {
		file := filepath.Join(p.dir, string(role)+"-go")
		script := fmt.Sprintf("echo up; while [ ! -e %[1]s1 ]; do sleep 0.01; done; echo mid; while [ ! -e %[1]s2 ]; do sleep 0.01; done; echo end; exit 3", file)
		s := enter(t, stream, key, "a")
		s.send(header("a", script, 0), script)
		s.greet(0)
		require.True(t, s.hello.Started)
		s.until("up\n")
		s.cut()

		s = p.open(t, role, "a")
		s.send(wire.RunHeader{Protocol: wire.Protocol, ID: "a", Offset: 3}, "")
		s.greet(3)
		require.False(t, s.hello.Started)
		require.NoError(t, os.WriteFile(file+"1", nil, 0o600))
		s.until("mid\n")
		s.cut()

		s = enter(t, stream, key, "a")
		s.send(wire.RunHeader{Protocol: wire.Protocol, ID: "a", Offset: 7}, "")
		s.greet(7)
		require.False(t, s.hello.Started)
		require.NoError(t, os.WriteFile(file+"2", nil, 0o600))
		out, exit := s.rest()
		require.Equal(t, "end\n", out)
		require.Equal(t, wire.Exit{Code: 3, Offset: 11}, exit)
	}
}

func TestACancelOverAPort(t *testing.T) {
	_, key, streams := keyedPod(t, wire.Build)
	s := enter(t, streams[wire.Build], key, "a")
	s.send(header("a", "echo up; sleep 60", 0), "echo up; sleep 60")
	s.greet(0)
	s.until("up\n")
	s.control(wire.Control{Cancel: "10s"})
	_, exit := s.rest()
	require.True(t, exit.Cancelled)
	require.Equal(t, 143, exit.Code)
}

func TestARefusalOverAPort(t *testing.T) {
	_, key, streams := keyedPod(t, wire.Build)
	s := enter(t, streams[wire.Build], key, "a")
	s.send(wire.RunHeader{Protocol: wire.Protocol, ID: "b"}, "")
	require.Contains(t, s.failure().Message, `the header is of run "b"`)
}

// listening returns the network sockets that a process listens on.
func listening(t testing.TB, f *first) []string {
	t.Helper()
	inodes := map[string]bool{}
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", f.cmd.Process.Pid))
	require.NoError(t, err)
	for _, link := range links {
		target, _ := os.Readlink(link)
		inodes[strings.TrimSuffix(strings.TrimPrefix(target, "socket:["), "]")] = true
	}
	var found []string
	for _, table := range []string{"tcp", "tcp6", "udp", "udp6", "raw", "raw6"} {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", f.cmd.Process.Pid, table))
		for line := range strings.Lines(string(text)) {
			if fields := strings.Fields(line); len(fields) > 9 && inodes[fields[9]] {
				found = append(found, table+" "+fields[1])
			}
		}
	}
	return found
}

func TestAnIdlePodListensToNothing(t *testing.T) {
	p := newPod(t)
	build, helper := p.serve(t, wire.Build), p.serve(t, wire.Helper)
	for role, f := range map[wire.Role]*first{wire.Build: build, wire.Helper: helper} {
		eventually(t, func() bool { return strings.Contains(f.log.String(), "started") })
		conn, err := net.Dial("unix", wire.Socket(p.runDir(), role))
		require.NoError(t, err)
		_, err = io.WriteString(conn, `{"command":"stream"}`+"\n")
		require.NoError(t, err)
		answer, err := io.ReadAll(conn)
		require.NoError(t, err)
		require.JSONEq(t, `{"port":0,"key":""}`, string(answer), "asked early")
	}
	require.Empty(t, listening(t, build))
	require.Empty(t, listening(t, helper))
	key := newKey(t)
	p.claimWith(t, wire.Build, "1", key)
	for _, f := range []*first{build, helper} {
		require.Len(t, listening(t, f), 1)
		require.Contains(t, listening(t, f)[0], "tcp 0100007F:", "the loopback and no other address")
	}
	again := p.claimWith(t, wire.Build, "1", key)
	require.Len(t, again.Streams, 2, "a claim whose answer was lost is made again")
	require.Len(t, listening(t, build), 1)
}

func TestADriverWithoutAKeyOrWithALaterOneComesByExec(t *testing.T) {
	p, f := claimedPod(t)
	require.Empty(t, p.claimWith(t, wire.Build, "1", newKey(t)).Streams)
	require.Empty(t, listening(t, f))
	p, first, _ := keyedPod(t, wire.Build, wire.Helper)
	require.Empty(t, p.claimWith(t, wire.Build, "1", newKey(t)).Streams, "the first key stays")
	require.Len(t, p.claimWith(t, wire.Build, "1", first).Streams, 2)
	out, _ := p.script(t, wire.Build, "a", "echo by exec")
	require.Equal(t, "by exec\n", out)
}

// The claim of a pod one of whose containers doesn't answer is a claim all the same.
func TestAContainerThatDoesNotAnswerIsLeftOut(t *testing.T) {
	t.Parallel() // it waits more than it works
	_, _, streams := keyedPod(t, wire.Build)
	require.NotContains(t, streams, wire.Helper)
}

// What a job may try on a port that it finds in its pod.
func TestAJobIsNotLetIn(t *testing.T) {
	_, key, streams := keyedPod(t, wire.Build, wire.Helper)
	to, other := streams[wire.Build], streams[wire.Helper]
	pid1, err := proof.Parse(to.Key)
	require.NoError(t, err)
	wrong := newKey(t)
	cases := map[string]func(t *testing.T, conn net.Conn){
		"commands without a proof": func(t *testing.T, conn net.Conn) {
			_, err := io.WriteString(conn, strings.Repeat(`{"command":"run","id":"a"}`+"\n", 10))
			require.NoError(t, err)
			all, _ := io.ReadAll(conn)
			require.LessOrEqual(t, len(all), 96, "PID 1's half of the proof, and no frame")
		},
		"another key": func(t *testing.T, conn net.Conn) {
			require.ErrorIs(t, proof.Driver(conn, wrong, pid1), proof.ErrOther, "PID 1 doesn't sign for it")
		},
		"another key, whatever PID 1 says": func(t *testing.T, conn net.Conn) {
			_, err := conn.Write(make([]byte, 32))
			require.NoError(t, err)
			answer := make([]byte, 96)
			_, err = io.ReadFull(conn, answer)
			require.NoError(t, err)
			_, err = conn.Write(append(ed25519.Sign(wrong, answer), `{"command":"run","id":"a"}`+"\n"...))
			require.NoError(t, err)
			nothing(t, conn)
		},
		"the driver's words to the other container": func(t *testing.T, conn net.Conn) {
			// The driver wants the helper; somebody who is between them leads it to build.
			helper, err := proof.Parse(other.Key)
			require.NoError(t, err)
			require.ErrorIs(t, proof.Driver(conn, key, helper), proof.ErrOther)
		},
		"a good-bye at once": func(t *testing.T, conn net.Conn) { conn.Close() },
		"one byte":           func(t *testing.T, conn net.Conn) { _, _ = conn.Write([]byte{1}); conn.Close() },
	}
	for sentence, act := range cases {
		t.Run(sentence, func(t *testing.T) { act(t, dialPort(t, to.Port)) })
	}
	// A place is taken for a second by whoever failed, so the driver may find none for that long.
	s := enter(t, other, key, "a")
	s.send(header("a", "echo hi", 0), "echo hi")
	s.greet(0)
	require.True(t, s.hello.Started, "nothing of the above started anything")
}

// Connections that say nothing are bounded in number and in time. While they last there is no room, and exec does.
func TestManyConnectionsThatSayNothing(t *testing.T) {
	t.Parallel() // it waits more than it works
	p, key, streams := keyedPod(t, wire.Build)
	to := streams[wire.Build]
	var silent []net.Conn
	for range 8 {
		silent = append(silent, dialPort(t, to.Port))
	}
	var group sync.WaitGroup
	for range 50 {
		conn := dialPort(t, to.Port)
		group.Go(func() { nothing(t, conn) }) // closed at once, as there is no room
	}
	group.Wait()
	out, _ := p.script(t, wire.Build, "a", "echo by exec")
	require.Equal(t, "by exec\n", out)
	for _, conn := range silent {
		group.Go(func() { nothing(t, conn) }) // closed when their time is over
	}
	group.Wait()
	eventually(t, func() bool {
		conn := dialPort(t, to.Port)
		defer conn.Close()
		pid1, err := proof.Parse(to.Key)
		require.NoError(t, err)
		return proof.Driver(conn, key, pid1) == nil
	})
}

// A job may replace the claim file, which is its user's. A PID 1 has seen the claim before any script ran, and goes by that.
func TestAJobThatForgesTheClaim(t *testing.T) {
	p := newPod(t)
	var firsts []*first
	for _, role := range []wire.Role{wire.Build, wire.Helper} {
		firsts = append(firsts, p.serve(t, role))
		eventually(t, func() bool { return exists(wire.Socket(p.runDir(), role)) })
	}
	p.claim(t, wire.Build, "1") // by a driver that comes by exec
	for _, f := range firsts {
		eventually(t, func() bool { return strings.Contains(f.log.String(), "claimed") })
	}
	forged := newKey(t)
	out, _ := p.script(t, wire.Build, "a", fmt.Sprintf("rm -f %[1]s/claim; echo claimed 1 %[2]s > %[1]s/claim; cat %[1]s/claim", p.runDir(), proof.Text(proof.Public(forged))))
	require.Contains(t, out, proof.Text(proof.Public(forged)))
	require.Empty(t, p.claimWith(t, wire.Build, "1", forged).Streams)
	for _, f := range firsts {
		require.Empty(t, listening(t, f))
	}
	require.NoError(t, os.Remove(filepath.Join(p.runDir(), "claim")))
	out, _ = p.script(t, wire.Helper, "b", "echo goes on")
	require.Equal(t, "goes on\n", out)
}

// Containers that run as different users agree on where they listen as on all else, and tell nothing more than that.
func TestStreamsOfContainersWithDifferentUsers(t *testing.T) {
	p := newContainers(t, map[wire.Role]image{wire.Build: {user: 1000}, wire.Helper: {}})
	for role := range p.images {
		p.boot(t, role)
	}
	key := newKey(t)
	result := p.claimWith(t, wire.Build, "1", key)
	require.Len(t, result.Streams, 2)
	for role, stream := range result.Streams {
		s := enter(t, stream, key, "a")
		s.send(header("a", "id -u", 0), "id -u")
		s.greet(0)
		out, exit := s.rest()
		require.Zero(t, exit.Code)
		require.Equal(t, fmt.Sprintln(p.images[role].user), out)
	}
	// No file that they share holds a private key.
	text, err := exec.Command("grep", "-rs", "", p.dir).Output()
	require.NotEmpty(t, text, "%v", err)
	require.Contains(t, string(text), proof.Text(proof.Public(key)))
	require.NotContains(t, string(text), fmt.Sprintf("%x", key.Seed()))
}
