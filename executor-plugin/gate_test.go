package main

import (
	"context"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"idlecount.dev/idlecount/e2e/cluster/clustertest"
)

// gate stands between a ground's driver and the API server: it counts the streams that are opened, cuts them, and can close
// a way.
type gate struct {
	mu     sync.Mutex
	opened map[string]int      // by subresource
	conns  map[net.Conn]string // connections that became streams
	shut   string              // the subresource that is refused
	silent string              // the subresource that is never answered
}

// gated leads the driver of a ground through a gate.
func gated(t *testing.T, g *ground) *gate {
	t.Helper()
	cfg := rest.AnonymousClientConfig(clustertest.RestConfig(t))
	cfg.NextProtos = []string{"http/1.1"} // streams need it
	transport, err := rest.TransportFor(cfg)
	require.NoError(t, err)
	target, err := url.Parse(cfg.Host)
	require.NoError(t, err)
	w := &gate{opened: map[string]int{}, conns: map[net.Conn]string{}}
	proxy := &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(target) }, Transport: transport}
	type key struct{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(out http.ResponseWriter, request *http.Request) {
		if kind := path.Base(request.URL.Path); kind == "exec" || kind == "portforward" {
			conn, _ := request.Context().Value(key{}).(net.Conn)
			switch shut, silent := w.pass(kind, conn); kind {
			case shut:
				http.Error(out, "the gate is shut", http.StatusBadGateway)
				return
			case silent:
				<-request.Context().Done()
				return
			}
		}
		proxy.ServeHTTP(out, request)
	}))
	server.Config.ConnContext = func(ctx context.Context, conn net.Conn) context.Context { return context.WithValue(ctx, key{}, conn) }
	server.StartTLS() // a driver sends no token in the clear
	t.Cleanup(server.Close)

	file, err := clientcmd.LoadFromFile(g.kubeconfig)
	require.NoError(t, err)
	for _, c := range file.Clusters {
		c.Server, c.CertificateAuthority = server.URL, ""
		c.CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	}
	kubeconfig := filepath.Join(t.TempDir(), "gate.kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*file, kubeconfig))
	g.runner.Environ = append(g.runner.Environ, "KUBECONFIG="+kubeconfig)
	return w
}

func (w *gate) pass(kind string, conn net.Conn) (shut, silent string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.opened[kind]++
	w.conns[conn] = kind
	return w.shut, w.silent
}

// count is how many streams of a kind were asked for.
func (w *gate) count(kind string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.opened[kind]
}

// set changes what the gate does from now on.
func (w *gate) set(shut, silent string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.shut, w.silent = shut, silent
}

// cut breaks all streams of a kind, and returns how many there were.
func (w *gate) cut(kind string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for conn, its := range w.conns {
		if its == kind {
			n++
			_ = conn.Close()
			delete(w.conns, conn)
		}
	}
	return n
}
