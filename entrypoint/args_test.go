//go:build linux

package main

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/entrypoint/idle"
	"idlecount.dev/idlecount/entrypoint/peer"
	"idlecount.dev/idlecount/entrypoint/wire"
)

func TestParse(t *testing.T) {
	key := strings.Repeat("0a", 32)
	cases := map[string]struct {
		args []string
		want command
		fail string
	}{
		"install":             {[]string{"install"}, command{name: "install", dir: wire.Dir}, ""},
		"serve":               {[]string{"serve", "--dir", "/x"}, command{name: "serve", dir: "/x"}, ""},
		"claim":               {[]string{"claim", "--job", "41"}, command{name: "claim", dir: wire.Dir, job: "41"}, ""},
		"claim with a key":    {[]string{"claim", "--job", "41", "--key", key}, command{name: "claim", dir: wire.Dir, job: "41", key: key}, ""},
		"a key that is none":  {[]string{"claim", "--job", "41", "--key", "0a"}, command{}, "want 64 hexadecimal digits"},
		"a key without a job": {[]string{"claim", "--key", key}, command{}, "job id"},
		"run":                 {[]string{"run", "--id", "a b"}, command{name: "run", dir: wire.Dir, id: "a b"}, ""},
		"cancel":              {[]string{"cancel", "--id=a", "--grace=1m"}, command{name: "cancel", dir: wire.Dir, id: "a", grace: time.Minute}, ""},
		"cancel has a grace":  {[]string{"cancel", "--id", "a"}, command{name: "cancel", dir: wire.Dir, id: "a", grace: defaultGrace}, ""},
		"nothing":             {nil, command{}, "no command is given"},
		"something else":      {[]string{"start"}, command{}, `unknown command "start"`},
		"another's flag":      {[]string{"serve", "--job", "1"}, command{}, "flag provided but not defined: -job"},
		"too much":            {[]string{"install", "/x"}, command{}, `unexpected argument "/x"`},
		"claim without a job": {[]string{"claim"}, command{}, "job id"},
		"a job id of two":     {[]string{"claim", "--job", "1 2"}, command{}, "without spaces"},
		"run without an id":   {[]string{"run"}, command{}, "--id is missing"},
		"a negative grace":    {[]string{"cancel", "--id", "a", "--grace", "-1s"}, command{}, "is negative"},
		"no folder":           {[]string{"serve", "--dir="}, command{}, "--dir is empty"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := parse(c.args)
			if c.fail != "" {
				require.ErrorContains(t, err, c.fail)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
	for _, help := range [][]string{{"--help"}, {"help"}, {"run", "-h"}} {
		_, err := parse(help)
		require.ErrorIs(t, err, flag.ErrHelp)
	}
}

func TestUsageGoesWhereItBelongs(t *testing.T) {
	var out, errs bytes.Buffer
	require.Equal(t, wire.ExitUsage, run([]string{"start"}, nil, streams{out: &out, err: &errs}))
	require.Empty(t, out.String())
	require.Contains(t, errs.String(), usage)
	errs.Reset()
	require.Equal(t, wire.ExitOK, run([]string{"help"}, nil, streams{out: &out, err: &errs}))
	require.Contains(t, out.String(), usage)
	out.Reset()
	require.Equal(t, wire.ExitOK, run([]string{"version"}, nil, streams{out: &out, err: &errs}))
	require.Regexp(t, fmt.Sprintf(`^entrypoint \S+ \(protocol %d, go`, wire.Protocol), out.String())
	require.NotContains(t, out.String(), "v0.0.0", "nobody knows a pseudo-version")
	require.Empty(t, errs.String())
}

func TestParseSettings(t *testing.T) {
	role := wire.EnvRole + "=helper"
	cases := map[string]struct {
		env  []string
		want settings
		fail []string
	}{
		"all given": {
			env:  []string{role, wire.EnvIdleTime + "=30m", wire.EnvAbandonTime + "=1m"},
			want: settings{wire.Helper, idle.Limits{Idle: 30 * time.Minute, Abandon: time.Minute}},
		},
		"no idle timer, the usual abandon time": {
			env:  []string{role, wire.EnvIdleTime + "=0s"},
			want: settings{wire.Helper, idle.Limits{Abandon: wire.DefaultAbandonTime}},
		},
		"nothing given": {fail: []string{`IDLECOUNT_ROLE="": want "build" or "helper"`, "IDLECOUNT_IDLE_TIME is not set"}},
		"all wrong": {
			env: []string{wire.EnvRole + "=svc", wire.EnvIdleTime + "=30", wire.EnvAbandonTime + "=0s"},
			fail: []string{`IDLECOUNT_ROLE="svc"`, `IDLECOUNT_IDLE_TIME="30": want a duration such as 30m`,
				"IDLECOUNT_ABANDON_TIME=0s is not positive"},
		},
		"a negative idle time": {env: []string{role, wire.EnvIdleTime + "=-1s"}, fail: []string{"is negative; 0s turns the idle timer off"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := parseSettings(c.env)
			if c.fail == nil {
				require.NoError(t, err)
				require.Equal(t, c.want, got)
			}
			for _, fail := range c.fail {
				require.ErrorContains(t, err, fail)
			}
		})
	}
}

// PID 1 may close while the driver is still sending: what it said before has to arrive.
func TestTheRelayDeliversWhatPID1Said(t *testing.T) {
	p := newPod(t)
	require.NoError(t, os.Mkdir(p.runDir(), 0o777))
	listener, err := peer.Listen(p.runDir(), wire.Build)
	require.NoError(t, err)
	defer listener.Close()
	said := bytes.Repeat([]byte("0123456789abcdef"), 64<<10)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		_, _ = bufio.NewReader(conn).ReadString('\n')
		_, _ = conn.Write(said)
		_ = conn.Close()
	}()
	in, driver := io.Pipe()
	go func() {
		for _, err := driver.Write([]byte("{}\n")); err == nil; _, err = driver.Write([]byte("{}\n")) {
		}
	}()
	var out slowWriter
	code := run([]string{wire.CommandRun, "--id", "a", "--dir", p.dir}, []string{wire.EnvRole + "=build"}, streams{in, &out, os.Stderr})
	require.NoError(t, in.Close())
	require.Equal(t, wire.ExitOK, code)
	require.Equal(t, len(said), out.Len())
}

// slowWriter is a driver that takes its time.
type slowWriter struct{ bytes.Buffer }

func (w *slowWriter) Write(p []byte) (int, error) {
	runtime.Gosched()
	return w.Buffer.Write(p)
}
