package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"idlecount.dev/idlecount/e2e/images"
	"idlecount.dev/idlecount/e2e/runner"
)

// countRequests runs one more warm job through a proxy that notes requests, and returns what `prepare` wrote, and how many
// streams the whole job opened. The jobs that are timed don't go through it.
func (b *bench) countRequests(ctx context.Context) (writes []string, execs, forwards int, err error) {
	proxy, err := newRecorder(b.config)
	if err != nil {
		return nil, 0, 0, err
	}
	defer proxy.close()
	kubeconfig := filepath.Join(b.folder, "proxy.kubeconfig")
	config := clientcmdapi.NewConfig()
	config.Clusters["proxy"] = &clientcmdapi.Cluster{Server: proxy.address()}
	config.Contexts["proxy"] = &clientcmdapi.Context{Cluster: "proxy"}
	config.CurrentContext = "proxy"
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		return nil, 0, 0, err
	}
	work := b.runner
	work.Environ = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	work.Observe = func(stage string, _ int) {
		if stage == "prepare_script" {
			writes = proxy.writes()
		}
	}
	b.job++
	result := work.Run(ctx, runner.Job{ID: b.job, Image: b.images[images.JobBash], Script: []string{"true"}}, nil)
	if result.Status != runner.Success {
		return nil, 0, 0, fmt.Errorf("the job through the proxy failed: %w\n%s", result.Err, result.Log)
	}
	return writes, int(proxy.execs.Load()), int(proxy.forwards.Load()), nil
}

// recorder is a proxy to the API server that notes requests which change something, and counts streams, which are none of
// those: they create no object.
type recorder struct {
	execs, forwards atomic.Int64

	server   *http.Server
	listener net.Listener
	mu       sync.Mutex
	noted    []string
}

func newRecorder(config *rest.Config) (*recorder, error) {
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	// Upgraded connections (exec) need HTTP/1.1.
	config = rest.CopyConfig(config)
	config.NextProtos = []string{"http/1.1"}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &recorder{listener: listener}
	proxy := &httputil.ReverseProxy{
		Rewrite:   func(p *httputil.ProxyRequest) { p.SetURL(target) },
		Transport: transport,
	}
	r.server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		switch {
		case strings.HasSuffix(request.URL.Path, "/exec"):
			r.execs.Add(1)
		case strings.HasSuffix(request.URL.Path, "/portforward"):
			r.forwards.Add(1)
		case request.Method != http.MethodGet:
			r.mu.Lock()
			r.noted = append(r.noted, request.Method+" "+request.URL.Path)
			r.mu.Unlock()
		}
		proxy.ServeHTTP(w, request)
	})}
	go func() {
		if err := r.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			fmt.Fprintf(os.Stderr, "the recording proxy: %v\n", err)
		}
	}()
	return r, nil
}

func (r *recorder) address() string { return "http://" + r.listener.Addr().String() }

func (r *recorder) writes() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.noted...)
}

func (r *recorder) close() { _ = r.server.Close() }
