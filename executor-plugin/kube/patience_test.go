package kube

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

func TestPatience(t *testing.T) {
	type outcome struct {
		calls   int
		notices []string
		took    time.Duration
		err     error
	}
	try := func(t *testing.T, call func(n int) error) (o outcome) {
		t.Helper()
		start := time.Now()
		p := Patience{Most: 2 * time.Minute, Notice: func(line string) { o.notices = append(o.notices, line) }}
		o.err = p.try(t.Context(), func(context.Context) error { o.calls++; return call(o.calls) })
		o.took = time.Since(start)
		return o
	}
	away := io.ErrUnexpectedEOF
	refusal := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no"))
	t.Run("a call that succeeds is made once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			o := try(t, func(int) error { return nil })
			require.Equal(t, 1, o.calls)
			require.Empty(t, o.notices)
		})
	})
	t.Run("an answer is an answer", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			no := errors.New("no")
			o := try(t, func(int) error { return no })
			require.Equal(t, 1, o.calls)
			require.ErrorIs(t, o.err, no)
		})
	})
	t.Run("a restart of a minute is survived and told", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			o := try(t, func(int) error {
				if time.Since(start) < time.Minute {
					return away
				}
				return nil
			})
			require.NoError(t, o.err)
			require.Len(t, o.notices, 2)
			require.Contains(t, o.notices[0], "trying again for up to 2m0s")
			require.Contains(t, o.notices[1], "answers again")
			require.Less(t, o.took, time.Minute+maxBackoff)
			require.Less(t, o.calls, 60, "and not hammered on")
		})
	})
	t.Run("a hiccup is nobody's business", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			o := try(t, func(n int) error {
				if n < 3 {
					return away
				}
				return nil
			})
			require.NoError(t, o.err)
			require.Empty(t, o.notices)
		})
	})
	t.Run("a refusal is an answer", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			o := try(t, func(int) error { return refusal })
			require.Equal(t, 1, o.calls)
		})
	})
	t.Run("a refusal by a server that was away is doubted", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			o := try(t, func(n int) error {
				switch {
				case n < 3:
					return away
				case n < 6:
					return refusal
				}
				return nil
			})
			require.NoError(t, o.err)
		})
	})
	t.Run("but not for ever", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			o := try(t, func(n int) error {
				if n == 1 {
					return away
				}
				return refusal
			})
			require.ErrorIs(t, o.err, refusal)
			require.InDelta(t, startDoubt, o.took, float64(maxBackoff))
		})
	})
	t.Run("patience ends", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			o := try(t, func(int) error { return away })
			require.ErrorIs(t, o.err, away)
			require.ErrorContains(t, o.err, "didn't answer for 2m")
		})
	})
}

// Prepare asks two things at once.
func TestAnOutageIsToldOnce(t *testing.T) {
	client, err := New(&rest.Config{Host: "https://a:1"}, "ci", Patience{})
	require.NoError(t, err)
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var notices []string
		p := client.patience
		p.Most, p.Notice = time.Minute, func(line string) { mu.Lock(); defer mu.Unlock(); notices = append(notices, line) }
		start := time.Now()
		var calls sync.WaitGroup
		for _, away := range []time.Duration{10 * time.Second, 20 * time.Second, 2 * time.Minute} {
			calls.Go(func() {
				_ = p.try(t.Context(), func(context.Context) error {
					if time.Since(start) < away {
						return client.explain("list", "pods", &url.Error{Op: "Get", URL: "https://a:1/api/v1/pods?labelSelector=x%3Dy", Err: &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}})
					}
					return nil
				})
			})
		}
		calls.Wait()
		require.Equal(t, []string{"the API server doesn't answer, trying again for up to 1m0s: https://a:1: dial tcp: connection refused"}, notices)
	})
}
