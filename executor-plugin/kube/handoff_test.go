package kube

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// slowConnection takes what is copied to it, after a while.
type slowConnection struct{ sent bytes.Buffer }

func (c *slowConnection) Write(p []byte) (int, error) {
	time.Sleep(time.Second)
	return c.sent.Write(p)
}

// The process ends right after its last line: a line that was only handed over is lost then.
func TestAWriteReturnsWhenItWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, conn := newHandoff(), &slowConnection{}
		go func() { _, _ = io.Copy(conn, struct{ io.Reader }{h}) }()
		for _, text := range []string{"header\n", strings.Repeat("x", 100_000), "done\n"} {
			before := conn.sent.Len()
			n, err := h.write([]byte(text))
			require.NoError(t, err)
			require.Equal(t, len(text), n)
			require.Equal(t, text, conn.sent.String()[before:])
		}
		h.close()
	})
}

func TestAClosedHandoffLetsEverybodyGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandoff()
		time.AfterFunc(time.Second, h.close)
		_, err := h.write([]byte("nobody reads"))
		require.ErrorIs(t, err, io.ErrClosedPipe)
		_, err = h.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
	})
}

func TestTailKeepsTheEnd(t *testing.T) {
	var end tail
	for range 1000 {
		_, _ = end.Write([]byte("noise\n"))
	}
	_, _ = end.Write([]byte("the  reason\n"))
	require.LessOrEqual(t, len(end.text()), tailLength)
	require.True(t, strings.HasSuffix(end.text(), "noise the reason"))
}
