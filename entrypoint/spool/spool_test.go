package spool_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/entrypoint/spool"
)

// put adds bytes as a reader of a pipe does, and returns how many there was room for.
func put(s *spool.Spool, b []byte) int {
	n := 0
	for n < len(b) && !s.Full() {
		k := copy(s.Reserve(len(b)-n), b[n:])
		s.Commit(k)
		n += k
	}
	return n
}

func TestBounds(t *testing.T) {
	s := spool.New(10)
	require.Equal(t, 10, put(s, []byte("0123456789ab")))
	require.True(t, s.Full())
	require.Empty(t, s.Reserve(1))
	s.Commit(0)

	require.ErrorContains(t, s.Ack(11), "there are 10 bytes")
	require.NoError(t, s.Ack(4))
	require.NoError(t, s.Ack(2), "an acknowledgement that was overtaken")
	require.False(t, s.Full())
	require.Equal(t, 2, put(s, []byte("ab")))

	_, err := s.From(3, 100)
	require.ErrorContains(t, err, "output before offset 4 was acknowledged and is gone")
	_, err = s.From(13, 100)
	require.ErrorContains(t, err, "there are 12 bytes of output, offset 13")
	got, err := s.From(4, 100)
	require.NoError(t, err)
	require.Equal(t, "456789ab", string(got))
	got, err = s.From(12, 100)
	require.NoError(t, err)
	require.Empty(t, got)
}

func TestTokens(t *testing.T) {
	s := spool.New(4)
	put(s, []byte("ab"))
	put(s, []byte("cd"))
	<-s.Data()
	require.Empty(t, s.Data(), "one token, however often")
	require.NoError(t, s.Ack(1))
	<-s.Room()
	s.Commit(0)
	require.Empty(t, s.Data(), "nothing was added")
}

// A spool behaves like the whole output with a line that says from where on it is kept.
func TestLikeTheWholeOutput(t *testing.T) {
	for seed := range uint64(25) {
		random := rand.New(rand.NewPCG(seed, 2))
		window := int64(1 + random.IntN(300<<10))
		s := spool.New(window)
		var all []byte
		base := int64(0)
		for range 300 {
			switch random.IntN(4) {
			case 0, 1:
				b := make([]byte, 1+random.IntN(100<<10))
				for i := range b {
					b[i] = byte(random.Uint32())
				}
				n := put(s, b)
				all = append(all, b[:n]...)
				require.LessOrEqual(t, int64(len(all))-base, window)
				require.True(t, n == len(b) || s.Full())
			case 2:
				offset := base + random.Int64N(int64(len(all))-base+1)
				limit := 1 + random.IntN(200<<10)
				got, err := s.From(offset, limit)
				require.NoError(t, err)
				require.LessOrEqual(t, len(got), limit)
				require.True(t, bytes.HasPrefix(all[offset:], got), "seed %d", seed)
				require.Equal(t, offset == int64(len(all)), len(got) == 0)
			case 3:
				base += random.Int64N(int64(len(all)) - base + 1)
				require.NoError(t, s.Ack(base))
			}
			require.Equal(t, base, s.Base())
			require.Equal(t, int64(len(all)), s.End())
		}
	}
}

// A slice that is being written to a connection must not change when a new connection acknowledges it.
func TestWhatWasHandedOutStays(t *testing.T) {
	s := spool.New(64 << 10)
	first := bytes.Repeat([]byte("a"), 64<<10)
	put(s, first)
	got, err := s.From(0, 64<<10)
	require.NoError(t, err)
	require.NoError(t, s.Ack(64<<10))
	put(s, bytes.Repeat([]byte("b"), 64<<10))
	require.Equal(t, first, got)
}

// Many small lines, each acknowledged, must not cost a chunk each.
func TestSmallLinesShareMemory(t *testing.T) {
	s := spool.New(1 << 20)
	line := []byte("a line of output\n")
	allocated := testing.AllocsPerRun(1000, func() {
		put(s, line)
		require.NoError(t, s.Ack(s.End()))
	})
	require.Less(t, allocated, 1.0)
}
