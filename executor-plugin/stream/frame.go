package stream

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"idlecount.dev/idlecount/entrypoint/wire"
)

// frame is one frame as it came; payload is only good until the next one is read.
type frame struct {
	kind    byte
	payload []byte
}

// frameHeader is the length of a frame before its payload: the kind and four bytes of length.
const frameHeader = 5

// errFrame is what a stream is when it isn't frames: something else answers at the other end.
var errFrame = errors.New("not a frame of idlecount's entrypoint")

// readFrame reads one frame into buffer, which grows as needed. io.EOF means that the stream ended between two frames,
// io.ErrUnexpectedEOF that it ended within one.
func readFrame(r io.Reader, buffer *[]byte) (frame, error) {
	var head [frameHeader]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return frame{}, err
	}
	kind, length := head[0], binary.BigEndian.Uint32(head[1:])
	switch kind {
	case wire.FrameHello, wire.FrameOutput, wire.FramePing, wire.FrameExit, wire.FrameError:
	default:
		return frame{}, fmt.Errorf("%w: kind %q", errFrame, kind)
	}
	if length > wire.MaxFrame {
		return frame{}, fmt.Errorf("%w: %d bytes of payload", errFrame, length)
	}
	if cap(*buffer) < int(length) {
		*buffer = make([]byte, length)
	}
	payload := (*buffer)[:length]
	if _, err := io.ReadFull(r, payload); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return frame{}, err
	}
	return frame{kind, payload}, nil
}

// decode reads the JSON of a frame.
func decode[T any](f frame) (T, error) {
	var v T
	if err := json.Unmarshal(f.payload, &v); err != nil {
		return v, fmt.Errorf("%w: payload of kind %q: %w", errFrame, f.kind, err)
	}
	return v, nil
}
