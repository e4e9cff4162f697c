package stream

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/entrypoint/wire"
)

// encode is a frame as the entrypoint writes it.
func encode(kind byte, payload []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(payload))), payload...)
}

func encodeJSON(kind byte, v any) []byte {
	payload, _ := json.Marshal(v)
	return encode(kind, payload)
}

func TestReadFrame(t *testing.T) {
	for sentence, test := range map[string]struct {
		stream []byte
		want   error
	}{
		"nothing":                         {nil, io.EOF},
		"a frame without a payload":       {encode(wire.FramePing, nil), nil},
		"a frame with a payload":          {encode(wire.FrameOutput, []byte("hello")), nil},
		"the largest frame":               {encode(wire.FrameOutput, make([]byte, wire.MaxFrame)), nil},
		"a frame that is too large":       {encode(wire.FrameOutput, make([]byte, wire.MaxFrame+1)), errFrame},
		"a frame that ends in its length": {encode(wire.FrameOutput, nil)[:3], io.ErrUnexpectedEOF},
		"a frame that lacks its payload":  {encode(wire.FrameOutput, []byte("hello"))[:5], io.ErrUnexpectedEOF},
		"a frame that is cut":             {encode(wire.FrameOutput, []byte("hello"))[:8], io.ErrUnexpectedEOF},
		"words of a shell":                {[]byte("sh: can't open"), errFrame},
	} {
		t.Run(sentence, func(t *testing.T) {
			var buffer []byte
			f, err := readFrame(iotest.OneByteReader(bytes.NewReader(test.stream)), &buffer)
			if test.want != nil {
				require.ErrorIs(t, err, test.want)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.stream, encode(f.kind, f.payload))
		})
	}
}

// FuzzReadFrame: whatever comes, it is read into frames that say what came, or refused; never more than the largest frame
// is held.
func FuzzReadFrame(f *testing.F) {
	f.Add(encode(wire.FrameOutput, []byte("hello")))
	f.Add(append(encodeJSON(wire.FrameHello, wire.Hello{ID: "x"}), encodeJSON(wire.FrameExit, wire.Exit{Code: 3})...))
	f.Add([]byte("OCI runtime exec failed"))
	f.Add([]byte{wire.FrameOutput, 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, stream []byte) {
		r := bytes.NewReader(stream)
		var buffer, back []byte
		for {
			got, err := readFrame(r, &buffer)
			if err != nil {
				known := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, errFrame)
				require.True(t, known, "%v", err)
				break
			}
			back = append(back, encode(got.kind, got.payload)...)
			_, _ = decode[wire.Exit](got)
		}
		require.True(t, bytes.HasPrefix(stream, back), "frames are what came")
		require.LessOrEqual(t, len(buffer), wire.MaxFrame)
	})
}
