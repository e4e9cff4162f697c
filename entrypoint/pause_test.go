//go:build linux

package main

import (
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/entrypoint/wire"
)

func TestPauseEndsWhenItIsTold(t *testing.T) {
	// Signals stay with this test, whoever else has asked for them: without the notification TERM would end the process.
	ended := make(chan int)
	go func() { ended <- run([]string{wire.CommandPause}, nil, streams{nil, io.Discard, io.Discard}) }()
	require.Never(t, func() bool {
		select {
		case <-ended:
			return true
		default:
			return false
		}
	}, 300*time.Millisecond, 50*time.Millisecond, "nothing told it to end")
	require.NoError(t, syscall.Kill(syscall.Getpid(), syscall.SIGTERM))
	require.Equal(t, wire.ExitOK, <-ended)
}
