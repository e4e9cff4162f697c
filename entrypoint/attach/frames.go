//go:build linux

package attach

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
)

// writeFrame writes a frame with one system call where the connection allows it.
func writeFrame(w io.Writer, kind byte, payload []byte) error {
	var head [5]byte
	head[0] = kind
	binary.BigEndian.PutUint32(head[1:], uint32(len(payload)))
	buffers := net.Buffers{head[:], payload}
	if _, err := buffers.WriteTo(w); err != nil {
		return fmt.Errorf("write frame %q: %w", kind, err)
	}
	return nil
}

// WriteMessage writes a frame whose payload is JSON: a wire.Hello, wire.Exit or wire.Failure.
func WriteMessage(w io.Writer, kind byte, message any) error {
	payload, err := json.Marshal(message)
	if err != nil {
		return err
	}
	return writeFrame(w, kind, payload)
}
