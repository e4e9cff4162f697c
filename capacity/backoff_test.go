package capacity

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPausesBetweenTriesGrow(t *testing.T) {
	now, why := time.Now(), errors.New("refused")
	var b backoff
	require.NoError(t, b.waits(now, "a"))
	for _, pause := range []time.Duration{firstRetry, 2 * firstRetry, 4 * firstRetry} {
		b = b.after(now, "a", why)
		require.Equal(t, why, b.waits(now.Add(pause-1), "a"))
		require.NoError(t, b.waits(now.Add(pause), "a"))
	}
	require.NoError(t, b.waits(now, "b"), "another thing is tried at once")
	require.Equal(t, firstRetry, b.after(now, "b", why).pause)
	for range 20 {
		b = b.after(now, "a", why)
	}
	require.Equal(t, maxRetry, b.pause)
	require.Zero(t, b.after(now, "a", nil))
}
