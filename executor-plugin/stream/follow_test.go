package stream

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/entrypoint/wire"
)

// far is the far end of a connection, as a test plays it.
type far struct {
	net.Conn
	header wire.RunHeader
	script string
	lines  *bufio.Reader
}

func (f *far) send(frames ...[]byte) { _, _ = f.Write(slices.Concat(frames...)) }

func (f *far) hello() { f.helloAt(f.header.Offset, f.header.ScriptBytes > 0) }

func (f *far) helloAt(offset int64, started bool) {
	f.send(encodeJSON(wire.FrameHello, wire.Hello{Protocol: wire.Protocol, ID: f.header.ID, Offset: offset, Started: started, Shell: "/bin/sh"}))
}

func (f *far) exit(code int, offset int64) {
	f.send(encodeJSON(wire.FrameExit, wire.Exit{Code: code, Offset: offset}))
}

// control reads the next line that is not a mere sign of life.
func (f *far) control() (wire.Control, error) {
	for {
		line, err := f.lines.ReadBytes('\n')
		if err != nil {
			return wire.Control{}, err
		}
		var c wire.Control
		if err := json.Unmarshal(line, &c); err != nil || c != (wire.Control{}) {
			return c, err
		}
	}
}

// drain reads what comes until the connection ends.
func (f *far) drain() { _, _ = io.Copy(io.Discard, f.lines) }

// play is a Follow whose connections a test answers one by one; after the last one all fail.
type play struct {
	connections []func(*far)
	options     Options
	output      bytes.Buffer
	notices     []string
	opened      []time.Duration // when, since the start
	check       func(cause error) error
	unseen      []time.Duration
}

func (p *play) follow(t *testing.T) (wire.Exit, error) {
	t.Helper()
	return p.followIn(t.Context())
}

func (p *play) followIn(ctx context.Context) (wire.Exit, error) {
	start := time.Now()
	o := p.options
	if o.Output == nil {
		o.Output = &p.output
	}
	o.Notice = func(line string) { p.notices = append(p.notices, line) }
	if o.Check == nil {
		o.Check = func(_ context.Context, cause error) error {
			if p.check != nil {
				return p.check(cause)
			}
			return nil
		}
	}
	o.CancelUnseen = func(_ context.Context, grace time.Duration) error { p.unseen = append(p.unseen, grace); return nil }
	if o.Timing == (Timing{}) {
		o.Timing = DefaultTiming(10 * time.Minute)
	}
	o.Open = func(context.Context) (io.ReadWriteCloser, error) {
		n := len(p.opened)
		p.opened = append(p.opened, time.Since(start))
		if n >= len(p.connections) || p.connections[n] == nil {
			return nil, errors.New("connection refused")
		}
		here, there := net.Pipe()
		go func() {
			defer func() { _ = there.Close() }()
			f := &far{Conn: there, lines: bufio.NewReader(there)}
			line, err := f.lines.ReadBytes('\n')
			if err != nil || json.Unmarshal(line, &f.header) != nil {
				return
			}
			text := make([]byte, f.header.ScriptBytes)
			if _, err := io.ReadFull(f.lines, text); err != nil {
				return
			}
			f.script = string(text)
			p.connections[n](f)
		}()
		return here, nil
	}
	return Follow(ctx, Script{ID: "build_script-x", Text: []byte("echo hi\n")}, o)
}

// waitDone plays the end of a good run.
func waitDone(f *far) {
	for {
		if c, err := f.control(); err != nil || c.Done {
			return
		}
	}
}

func TestARunInOneConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var last wire.Control
		p := &play{connections: []func(*far){func(f *far) {
			if f.script != "echo hi\n" || !f.header.Pings || f.header.Offset != 0 {
				return
			}
			f.hello()
			f.send(encode(wire.FrameOutput, []byte("hi")), encode(wire.FramePing, nil), encode(wire.FrameOutput, []byte("\n\x00\xff")))
			f.exit(3, 5)
			last, _ = f.control()
		}}}
		exit, err := p.follow(t)
		synctest.Wait()
		require.NoError(t, err)
		require.Equal(t, wire.Exit{Code: 3, Offset: 5}, exit)
		require.Equal(t, "hi\n\x00\xff", p.output.String())
		require.Equal(t, wire.Control{Ack: 5, Done: true}, last, "the pod hears that the exit was taken")
		require.Empty(t, p.notices)
	})
}

func TestABrokenConnectionGoesOnAtItsByteWithoutTheScript(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var second wire.RunHeader
		p := &play{connections: []func(*far){
			func(f *far) { f.hello(); f.send(encode(wire.FrameOutput, []byte("one "))) },
			func(f *far) {
				second = f.header
				f.hello()
				f.send(encode(wire.FrameOutput, []byte("two")))
				f.exit(0, 7)
				waitDone(f)
			},
		}}
		exit, err := p.follow(t)
		require.NoError(t, err)
		require.Zero(t, exit.Code)
		require.Equal(t, "one two", p.output.String())
		require.EqualValues(t, 4, second.Offset)
		require.Zero(t, second.ScriptBytes, "a script that was seen to run isn't sent again: it could only be started twice")
		require.Zero(t, p.opened[1], "the first retry is immediate")
		require.Empty(t, p.notices, "a hiccup is nobody's business")
	})
}

func TestAScriptOfWhichNothingWasHeardIsSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &play{connections: []func(*far){
			func(*far) {}, // took the script, and broke before the hello
			func(f *far) {
				if f.script == "" {
					return
				}
				f.helloAt(0, false) // it had been started
				f.exit(0, 0)
				waitDone(f)
			},
		}}
		_, err := p.follow(t)
		require.NoError(t, err)
		require.Len(t, p.opened, 2)
	})
}

func TestSilenceIsABrokenConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &play{connections: []func(*far){
			func(f *far) { f.hello(); f.drain() }, // hangs
			func(f *far) { f.hello(); f.exit(0, 0); waitDone(f) },
		}}
		_, err := p.follow(t)
		require.NoError(t, err)
		require.Equal(t, 3*wire.PingInterval, p.opened[1])
	})
}

func TestPingsKeepAQuietConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signs := 0
		p := &play{connections: []func(*far){func(f *far) {
			f.hello()
			go func() {
				for range 360 {
					time.Sleep(wire.PingInterval)
					f.send(encode(wire.FramePing, nil))
				}
				f.exit(0, 0)
			}()
			for {
				line, err := f.lines.ReadString('\n')
				if err != nil || strings.Contains(line, "done") {
					return
				}
				signs++
			}
		}}}
		_, err := p.follow(t)
		require.NoError(t, err)
		require.Len(t, p.opened, 1, "an hour of silence, one connection")
		require.GreaterOrEqual(t, signs, 359, "and our own signs of life in it")
	})
}

func TestOutputIsAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var acks []wire.Control
		p := &play{connections: []func(*far){func(f *far) {
			f.hello()
			f.send(encode(wire.FrameOutput, []byte("little")))
			c, _ := f.control() // after a second
			acks = append(acks, c)
			go f.send(encode(wire.FrameOutput, make([]byte, 300<<10)))
			c, _ = f.control() // at once
			acks = append(acks, c)
			f.exit(0, 6+300<<10)
			waitDone(f)
		}}}
		start := time.Now()
		_, err := p.follow(t)
		require.NoError(t, err)
		require.Equal(t, []wire.Control{{Ack: 6}, {Ack: 6 + 300<<10}}, acks)
		require.Equal(t, time.Second, time.Since(start))
	})
}

func TestAnOutageIsWaitedForAndTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &play{connections: []func(*far){func(f *far) { f.hello(); f.send(encode(wire.FrameOutput, []byte("half a line"))) }}}
		for range 20 {
			p.connections = append(p.connections, nil)
		}
		p.connections = append(p.connections, func(f *far) { f.hello(); f.exit(0, 11); waitDone(f) })
		_, err := p.follow(t)
		require.NoError(t, err)
		require.Len(t, p.notices, 2)
		require.True(t, strings.HasPrefix(p.notices[0], "\n"), "our line doesn't end the script's: %q", p.notices[0])
		require.Contains(t, p.notices[0], "connection refused")
		require.Contains(t, p.notices[1], "connected to the script again")
		var longest time.Duration
		for i := range p.opened[1:] {
			longest = max(longest, p.opened[i+1]-p.opened[i])
		}
		require.LessOrEqual(t, longest, 5*time.Second)
		require.Greater(t, p.opened[len(p.opened)-1], 30*time.Second, "backoff")
	})
}

func TestPatienceEndsWithThePods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &play{connections: []func(*far){func(f *far) { f.hello() }}}
		start := time.Now()
		_, err := p.follow(t)
		require.ErrorContains(t, err, "no connection to the script for 10m")
		require.InDelta(t, 10*time.Minute, time.Since(start), float64(10*time.Second))
	})
}

func TestWhatEndsAFollow(t *testing.T) {
	hello := func(f *far) { f.hello() }
	for sentence, test := range map[string]struct {
		connections []func(*far)
		check       func(error) error
		says        string
	}{
		"the pod is gone": {nil, func(error) error { return errors.New("pod a/b is gone") }, "pod a/b is gone"},
		"the entrypoint refuses": {[]func(*far){func(f *far) {
			f.send(encodeJSON(wire.FrameError, wire.Failure{Message: "no shell"}))
		}}, nil, "the pod can't run the script: no shell"},
		"another program answers":   {[]func(*far){func(f *far) { f.send([]byte("exec failed: no such file")) }}, nil, "not a frame"},
		"output before the hello":   {[]func(*far){func(f *far) { f.send(encode(wire.FrameOutput, []byte("x"))) }}, nil, "before the hello"},
		"output is missing":         {[]func(*far){func(f *far) { f.helloAt(7, true) }}, nil, "from byte 0 on is asked for"},
		"another protocol":          {[]func(*far){func(f *far) { f.send(encodeJSON(wire.FrameHello, wire.Hello{Protocol: 99})) }}, nil, "protocol 99"},
		"the container is replaced": {[]func(*far){hello, func(f *far) { f.helloAt(0, true) }}, nil, "the container was replaced"},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &play{connections: test.connections, check: test.check}
				_, err := p.follow(t)
				require.ErrorContains(t, err, test.says)
			})
		})
	}
}

// The word of the entrypoint can be faster than the watch of the pod.
func TestAnEntrypointThatStopsIsExplainedByItsPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &play{connections: []func(*far){func(f *far) {
			f.hello()
			f.send(encodeJSON(wire.FrameError, wire.Failure{Message: "told to stop"}))
			f.drain()
		}}, check: func(error) error { return errors.New("pod a/b was preempted") }}
		_, err := p.follow(t)
		require.EqualError(t, err, "pod a/b was preempted; the pod can't run the script: told to stop")
	})
}

// A kubelet says why it ended a pod when all has ended, which is later than the entrypoint's word.
func TestTheReasonOfAStopIsWaitedFor(t *testing.T) {
	deadline := End{Reason: "pod a/b has ended: it was active too long", Gone: true}
	for sentence, test := range map[string]struct {
		reasonAfter time.Duration
		says        string
		takes       time.Duration
	}{
		"it comes":          {2 * time.Second, deadline.Reason + "; the pod can't run the script: told to stop", 2 * time.Second},
		"it comes too late": {time.Minute, "the pod can't run the script: told to stop", DefaultTiming(0).Reason},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ends := make(chan End, 1)
				p := &play{options: Options{Ends: ends}, connections: []func(*far){func(f *far) {
					f.hello()
					f.send(encodeJSON(wire.FrameError, wire.Failure{Message: "told to stop"}))
					time.AfterFunc(test.reasonAfter, func() { ends <- deadline })
					f.drain()
				}}}
				start := time.Now()
				_, err := p.follow(t)
				require.EqualError(t, err, test.says)
				require.Equal(t, test.takes, time.Since(start))
			})
		})
	}
}

func TestAFailureThatMayPassIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := func(f *far) {
			f.send(encodeJSON(wire.FrameError, wire.Failure{Message: "fork: out of memory", Retry: true}))
			f.drain()
		}
		p := &play{connections: []func(*far){busy, busy, busy, func(f *far) { f.hello(); f.exit(0, 0); waitDone(f) }}}
		_, err := p.follow(t)
		require.NoError(t, err)
		require.Len(t, p.opened, 4)
	})
}

// An exit that claims more output than came is not the end: the rest is asked for.
func TestAnExitWithMissingOutputIsNotBelieved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &play{connections: []func(*far){
			func(f *far) { f.hello(); f.exit(0, 4); f.drain() },
			func(f *far) { f.hello(); f.send(encode(wire.FrameOutput, []byte("late"))); f.exit(0, 4); waitDone(f) },
		}}
		_, err := p.follow(t)
		require.NoError(t, err)
		require.Equal(t, "late", p.output.String())
	})
}

func TestCancelIsSentInBandAndTheRestIsDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cancel := make(chan time.Duration, 1)
		var got wire.Control
		p := &play{options: Options{Cancel: cancel}, connections: []func(*far){func(f *far) {
			f.hello()
			cancel <- 30 * time.Second
			got, _ = f.control()
			f.send(encode(wire.FrameOutput, []byte("trapped")))
			f.send(encodeJSON(wire.FrameExit, wire.Exit{Code: 143, Offset: 7, Cancelled: true}))
			waitDone(f)
		}}}
		exit, err := p.follow(t)
		require.NoError(t, err)
		require.Equal(t, "30s", got.Cancel)
		require.True(t, exit.Cancelled)
		require.Equal(t, "trapped", p.output.String())
		require.Empty(t, p.unseen)
	})
}

func TestCancelDuringAnOutageIsSentWithTheNextConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cancel := make(chan time.Duration, 1)
		var got wire.Control
		p := &play{options: Options{Cancel: cancel}, connections: []func(*far){
			func(f *far) { f.hello() },
			nil, nil, nil,
			func(f *far) {
				f.hello()
				got, _ = f.control()
				f.exit(143, 0)
				waitDone(f)
			},
		}}
		p.check = func(error) error {
			if len(p.opened) == 3 {
				cancel <- 30 * time.Second
			}
			return nil
		}
		exit, err := p.follow(t)
		require.NoError(t, err)
		require.Equal(t, "30s", got.Cancel)
		require.Equal(t, 143, exit.Code)
	})
}

func TestCancelOfARunThatWasNeverSeenDoesNotStartIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cancel := make(chan time.Duration, 1)
		cancel <- 30 * time.Second
		p := &play{options: Options{Cancel: cancel}}
		_, err := p.follow(t)
		require.ErrorIs(t, err, ErrCancelled)
		require.Equal(t, []time.Duration{30 * time.Second}, p.unseen)
	})
}

func TestACancelledScriptThatStaysSilentIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cancel := make(chan time.Duration, 1)
		p := &play{options: Options{Cancel: cancel}, connections: []func(*far){func(f *far) {
			f.hello()
			cancel <- 30 * time.Second
			go f.drain()
			for {
				time.Sleep(5 * time.Second)
				if _, err := f.Write(encode(wire.FramePing, nil)); err != nil {
					return
				}
			}
		}}}
		start := time.Now()
		_, err := p.follow(t)
		require.ErrorIs(t, err, ErrCancelled)
		require.Equal(t, 45*time.Second, time.Since(start))
		time.Sleep(time.Minute) // for the far end to notice
	})
}

// endings are what the watch of a pod may tell during a run.
func TestTheEndOfAPodIsNeverTheScriptsFailure(t *testing.T) {
	evicted := End{Reason: "pod a/b is being ended: evicted", Grace: 30 * time.Second}
	gone := End{Reason: "pod a/b: container build was killed since it used more memory than it may", Gone: true}
	for sentence, test := range map[string]struct {
		end   End
		after func(f *far)
		then  func(f *far)
		code  int
		says  string
		takes time.Duration
	}{
		"gone, and the stream hangs":               {end: gone, after: (*far).drain, says: gone.Reason, takes: 2 * time.Second},
		"gone, and the stream breaks":              {end: gone, after: func(*far) {}, says: gone.Reason},
		"gone, and its exit code was on the way":   {end: gone, after: func(f *far) { f.exit(0, 0); waitDone(f) }, code: 0},
		"gone, and a bad exit code was on the way": {end: gone, after: func(f *far) { f.exit(137, 0); waitDone(f) }, says: gone.Reason},
		"told to end, the script ends well before": {end: evicted, after: func(f *far) { f.exit(0, 0); waitDone(f) }, code: 0},
		"told to end, the script gets TERM":        {end: evicted, after: func(f *far) { f.exit(143, 0); waitDone(f) }, says: evicted.Reason},
		"told to end, and the entrypoint says so": {end: evicted, after: func(f *far) {
			f.send(encodeJSON(wire.FrameError, wire.Failure{Message: "the container was told to stop"}))
			f.drain()
		}, says: evicted.Reason + "; the pod can't run the script: the container was told to stop"},
		"told to end, and the stream hangs":              {end: evicted, after: (*far).drain, says: evicted.Reason, takes: 30 * time.Second},
		"told to end, and the stream breaks, for good":   {end: evicted, after: func(*far) {}, says: evicted.Reason},
		"told to end, and the stream comes back in time": {end: evicted, after: func(*far) {}, then: func(f *far) { f.hello(); f.exit(0, 0); waitDone(f) }},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ends := make(chan End, 1)
				p := &play{options: Options{Ends: ends}, connections: []func(*far){func(f *far) {
					f.hello()
					ends <- test.end
					synctest.Wait()
					test.after(f)
				}, test.then}}
				start := time.Now()
				exit, err := p.follow(t)
				if test.says != "" {
					require.ErrorContains(t, err, test.says)
				} else {
					require.NoError(t, err)
					require.Equal(t, test.code, exit.Code)
				}
				require.InDelta(t, test.takes, time.Since(start), float64(3*time.Second))
				if !test.end.Gone {
					require.Contains(t, p.notices, test.end.Reason, "it is told as it happens")
				}
			})
		})
	}
}

func TestStoppingAFollowLeavesNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		stopped := errors.New("stopped")
		p := &play{connections: []func(*far){func(f *far) { f.hello(); cancel(stopped); f.drain() }}}
		_, err := p.followIn(ctx)
		require.ErrorIs(t, err, stopped)
		// synctest fails the test if a goroutine of the follow is left.
	})
}

func TestFullOutputIsAFinalError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &play{connections: []func(*far){func(f *far) { f.hello(); f.send(encode(wire.FrameOutput, []byte("x"))); f.drain() }}}
		p.options.Output = brokenWriter{}
		_, err := p.follow(t)
		require.ErrorContains(t, err, "write the script's output: disk full")
	})
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("disk full") }

// `entrypoint run` is there and says after five seconds, each time, that it can't reach PID 1: that is no sign of life.
func TestAPID1ThatCannotBeReachedIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &play{connections: make([]func(*far), 1000)}
		for i := range p.connections {
			p.connections[i] = func(f *far) {
				time.Sleep(5 * time.Second)
				f.send(encodeJSON(wire.FrameError, wire.Failure{Message: "nobody listens", Retry: true}))
			}
		}
		var asked []string
		p.check = func(cause error) error {
			if answer, ok := errors.AsType[*AnswerError](cause); ok {
				asked = append(asked, answer.Message)
			}
			return nil
		}
		_, err := p.follow(t)
		require.ErrorContains(t, err, "nobody listens")
		require.NotEmpty(t, asked, "somebody who sees the pod can say more")
		require.NotContains(t, strings.Join(p.notices, "\n"), "goes on meanwhile", "it was never started")
	})
}
