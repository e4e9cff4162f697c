//go:build linux

package main

import (
	"os"
	"os/signal"
	"syscall"
)

// pause waits to be told to end. PID 1 gets no signal that it hasn't asked for; nothing else ever wakes it.
func pause() {
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM, syscall.SIGINT)
	<-told
}
