package proxy

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

func TestResource(t *testing.T) {
	cases := map[string]string{
		"/api/v1/pods":                                           "pods",
		"/api/v1/namespaces":                                     "namespaces",
		"/api/v1/namespaces/ci":                                  "namespaces",
		"/api/v1/namespaces/ci/pods":                             "pods",
		"/api/v1/namespaces/ci/pods/a":                           "pods",
		"/api/v1/namespaces/ci/pods/a/status":                    "pods/status",
		"/apis/coordination.k8s.io/v1/namespaces/ci/leases/x":    "leases",
		"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews": "selfsubjectaccessreviews",
		"/version": "/version",
	}
	for path, want := range cases {
		require.Equal(t, want, resource(path), path)
	}
}

func TestAStreamComesLateInOrderAndComplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := io.Pipe()
		begin := time.Now()
		lags := []time.Duration{3 * time.Second, time.Second, 0}
		d := delay(from, func() time.Duration {
			lag := lags[0]
			if len(lags) > 1 {
				lags = lags[1:]
			}
			return lag
		})
		go func() {
			for i := range 3 {
				fmt.Fprintf(to, "%d", i)
			}
			_ = to.CloseWithError(errors.New("broken"))
		}()
		text := make([]byte, 1)
		_, err := d.Read(text)
		require.NoError(t, err)
		require.Equal(t, "0", string(text))
		require.Equal(t, 3*time.Second, time.Since(begin))
		all, err := io.ReadAll(d)
		require.ErrorContains(t, err, "broken")
		require.Equal(t, "12", string(all), "a piece with a shorter lag doesn't overtake")
	})
}

func TestAnErrorThatComesWithDataDoesNotHideIt(t *testing.T) {
	all, err := io.ReadAll(delay(io.NopCloser(iotest.DataErrReader(iotest.OneByteReader(&io.LimitedReader{R: zeros{}, N: 3}))), func() time.Duration { return 0 }))
	require.NoError(t, err)
	require.Len(t, all, 3)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestClosingEndsAReadThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := io.Pipe()
		d := delay(from, func() time.Duration { return time.Hour })
		ended := make(chan error)
		go func() {
			_, err := d.Read(make([]byte, 1))
			ended <- err
		}()
		_, _ = to.Write([]byte("x"))
		synctest.Wait()
		require.NoError(t, d.Close())
		require.ErrorIs(t, <-ended, io.ErrClosedPipe)
	})
}

func TestRequestsAreCountedAndPassedOn(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s %s", r.Method, r.URL, r.Header.Get("Authorization"))
	}))
	defer server.Close()
	p, err := Start(&rest.Config{Host: server.URL, BearerToken: "t"}, Options{})
	require.NoError(t, err)
	defer p.Close()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, p.WriteKubeconfig(kubeconfig))
	through, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	require.NoError(t, err)

	for _, path := range []string{"/api/v1/namespaces/ci/pods?watch=true", "/api/v1/namespaces/ci/pods", "/api/v1/namespaces/ci/pods"} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, through.Host+path, nil)
		require.NoError(t, err)
		answer, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, "GET "+path+" Bearer t", string(body))
	}
	require.Equal(t, map[Request]int{{"watch", "pods"}: 1, {"GET", "pods"}: 2}, p.Counts())
}
