//go:build linux

// The entrypoint is PID 1 of a pod's build and helper containers, and the commands by which a driver talks to it. It works
// in any image that has a shell, as any user, and needs nothing but the folder that the containers of a pod share.
//
//	entrypoint install                  copies itself to DIR/bin, in an init container
//	entrypoint serve                    PID 1: waits for a claim, runs scripts, ends itself when nobody needs it
//	entrypoint pause                    PID 1 of a pause pod: does nothing until it is told to end
//	entrypoint claim --job ID [--key KEY]
//	                                    binds the pod to a job, prints a wire.ClaimResult. With the public key of a driver
//	                                    the PID 1s listen for that driver on the loopback of the pod
//	entrypoint run --id ID              runs a script, or follows one; package wire says what is on stdin and stdout
//	entrypoint cancel --id ID [--grace DURATION]
//	entrypoint version
//
// All take --dir DIR, the folder that the containers share (default /idlecount).
//
// serve is configured by the environment of the container, and keeps these variables from scripts:
//
//	IDLECOUNT_ROLE          the container: build or helper. In helper `gitlab-runner` resolves to gitlab-runner-helper,
//	                        and files are made for everybody, as in GitLab's own helper container. run and cancel
//	                        read it as well
//	IDLECOUNT_IDLE_TIME     how long an unclaimed pod waits before it ends itself, as a Go duration; 0s: for ever
//	IDLECOUNT_ABANDON_TIME  how long a claimed pod goes on while no driver is attached (default 10m0s)
//
// Exit codes are those of package wire.
package main

import (
	"io"
	"os"
)

func main() {
	os.Exit(run(os.Args[1:], os.Environ(), streams{os.Stdin, os.Stdout, os.Stderr}))
}

// streams are the standard ones: out is data, err all else.
type streams struct {
	in       io.Reader
	out, err io.Writer
}
