// Package wire is what the entrypoint in a pod and those who talk to it agree on: paths, variables, commands, exit codes
// and the frames of a running script. It holds no behaviour that touches a system, and imports the standard library only.
package wire

import "time"

// Protocol is the version of everything in this package. It is part of a pod's shape: a driver only finds pods whose
// entrypoint speaks its protocol, whatever release of idlecount made them.
const Protocol = 2

// Paths inside a pod. Dir is an emptyDir that the containers with an entrypoint share.
const (
	Dir    = "/idlecount"
	Binary = Dir + "/bin/entrypoint"
	RunDir = Dir + "/run"
	// ClaimFile is created once, atomically, by whoever comes first: `entrypoint claim` or an idle timer.
	ClaimFile = RunDir + "/claim"
	// AttachedFile is touched while a driver is attached to any container of the pod.
	AttachedFile = RunDir + "/attached"
)

// Socket is the unix socket on which a container's PID 1 listens.
func Socket(runDir string, role Role) string { return runDir + "/" + string(role) + ".sock" }

// Role is which container a PID 1 is; it is the container's name in the pod.
type Role string

// The containers that run the entrypoint.
const (
	Build  Role = "build"
	Helper Role = "helper"
)

// Variables that configure PID 1. They are taken out of the environment of scripts.
const (
	EnvPrefix      = "IDLECOUNT_"
	EnvRole        = EnvPrefix + "ROLE"
	EnvIdleTime    = EnvPrefix + "IDLE_TIME"    // Go duration; "0s" turns the idle timer off
	EnvAbandonTime = EnvPrefix + "ABANDON_TIME" // Go duration
)

// DefaultAbandonTime is how long a claimed pod goes on with no driver attached.
const DefaultAbandonTime = 10 * time.Minute

// Commands of the entrypoint binary.
const (
	CommandInstall = "install" // copies the binary to Dir/bin; the init container
	CommandServe   = "serve"   // PID 1
	CommandPause   = "pause"   // PID 1 of a pause pod
	CommandClaim   = "claim"   // --job ID [--key KEY], the driver's public key: see Stream
	CommandRun     = "run"     // --id ID; frames on stdin and stdout
	CommandCancel  = "cancel"  // --id ID --grace DURATION
)

// Exit codes of the entrypoint's commands, and of PID 1.
const (
	ExitOK        = 0
	ExitError     = 1
	ExitUsage     = 2
	ExitExpired   = 10  // claim: the idle timer was first
	ExitOther     = 11  // claim: the pod belongs to another job
	ExitAbandoned = 12  // PID 1: no driver attached for the abandon time
	ExitStopped   = 143 // PID 1: told to stop while a job had the pod
)

// ClaimResult is what `entrypoint claim` prints, one line of JSON.
type ClaimResult struct {
	Protocol int    `json:"protocol"`
	Result   string `json:"result"` // "claimed", "expired" or "other"
	Job      string `json:"job,omitempty"`
	Shell    string `json:"shell,omitempty"` // the shell that scripts will get in this container
	// Streams are where the PID 1s of the pod listen for whoever has the private part of the key that the pod was claimed
	// with. One that is missing can be reached by its commands only.
	Streams map[Role]Stream `json:"streams,omitempty"`
}

// Stream is a TCP port on the loopback of the pod, to be reached by port-forward. Both ends first prove who they are, as
// package proof says; then the driver sends a Request, and the rest is as over `entrypoint run`.
type Stream struct {
	Port uint16 `json:"port"`
	Key  string `json:"key"` // PID 1's public key, as proof.Text writes it
}

// Request is a line of JSON, the first on a connection to a PID 1: by a command of the entrypoint in its container, or by a
// driver over a Stream. After CommandRun the stream is that of `entrypoint run`; CommandCancel is answered by one line of
// JSON, a Failure, empty where all is well; RequestStream by a Stream, empty where there is none.
type Request struct {
	Command string        `json:"command"`
	ID      string        `json:"id,omitempty"`
	Grace   time.Duration `json:"grace,omitempty"`
}

// RequestStream asks a PID 1 where it listens. It is no command of the binary.
const RequestStream = "stream"

// RunHeader is the first line that `entrypoint run` reads, JSON, ended by a newline. ScriptBytes bytes of script follow,
// then lines of Control. The script is started only when all of it has come and its SHA-256 is right; with an ID that is
// known already it is not started again, and the output from Offset follows. An Offset acknowledges all before it.
// The end of this stream, in either direction, is the end of the attachment and not of the script: a driver keeps its
// side open until FrameExit. A pod that was not claimed, with `entrypoint claim`, runs nothing.
type RunHeader struct {
	Protocol     int    `json:"protocol"`
	ID           string `json:"id"`
	Offset       int64  `json:"offset"`
	ScriptBytes  int64  `json:"script_bytes"`
	ScriptSHA256 string `json:"script_sha256"`
	// Pings is a driver's promise to send a line at least every PingInterval, `{}` where it has nothing to say. PID 1
	// then takes three silent intervals for a driver that is gone, although its stream never ended.
	Pings bool `json:"pings,omitempty"`
}

// Control is a line of JSON from the driver during a run; each field stands for itself.
type Control struct {
	Ack    int64  `json:"ack,omitempty"`    // all output before this offset has been taken
	Cancel string `json:"cancel,omitempty"` // TERM now, KILL after this Go duration
	Done   bool   `json:"done,omitempty"`   // the exit was taken: what is kept of the run may go
}

// Kinds of frame. A frame is its kind, the length of its payload as four bytes big endian, the payload.
const (
	FrameHello  byte = 'h' // Hello as JSON, once, first
	FrameOutput byte = 'o' // output of the script, stdout and stderr as they came
	FramePing   byte = 'p' // nothing to say, still here
	FrameExit   byte = 'x' // Exit as JSON, last
	FrameError  byte = 'e' // Failure as JSON, last: the run can't be started or followed
)

// PingInterval is how often a quiet run sends FramePing; a reader that hears nothing for three of them reconnects.
const PingInterval = 10 * time.Second

// MaxFrame bounds a payload, in bytes.
const MaxFrame = 1 << 20

// Window is how much output that no Ack has covered PID 1 keeps, in bytes; when it is full the script waits. A driver
// acknowledges at least every quarter of it.
const Window = 4 << 20

// MaxScript bounds RunHeader.ScriptBytes.
const MaxScript = 64 << 20

// Hello says where the output that follows begins.
type Hello struct {
	Protocol int    `json:"protocol"`
	ID       string `json:"id"`
	Offset   int64  `json:"offset"`
	Started  bool   `json:"started"` // true where this header started the script, false where it ran already
	Shell    string `json:"shell"`
}

// Exit is how a script ended. Code is the shell's exit code, 128+n where signal n ended it.
type Exit struct {
	Code      int   `json:"code"`
	Offset    int64 `json:"offset"` // length of the whole output
	Cancelled bool  `json:"cancelled,omitempty"`
}

// Failure is why a run can't go on. Retry is true where the same header may succeed later.
type Failure struct {
	Message string `json:"message"`
	Retry   bool   `json:"retry,omitempty"`
}
