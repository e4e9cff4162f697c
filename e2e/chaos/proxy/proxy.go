// Package proxy stands between a program of ours and the API server: it counts what is asked for, and shows what is watched
// late, as an API server under load does. It changes no request and no answer.
package proxy

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Request is what requests are counted by.
type Request struct {
	Verb     string // "watch", or the HTTP method
	Resource string // as the API names it, with its subresource: "pods", "pods/status"; the path where it is none
}

// Proxy is a proxy that runs.
type Proxy struct {
	server   *http.Server
	listener net.Listener

	mu     sync.Mutex
	counts map[Request]int
}

// Options are what a proxy does besides counting.
type Options struct {
	Lag  func() time.Duration  // asked for each piece of each watch's stream how late it comes; pieces keep their order. nil = at once
	Seen func(r *http.Request) // told of each request before it is passed on, maybe of several at once; nil for nobody
}

// Start serves on a free port of this machine, without TLS or credentials: those of config are used for all requests.
func Start(config *rest.Config, o Options) (*Proxy, error) {
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, fmt.Errorf("the API server's address: %w", err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: listener, counts: map[Request]int{}}
	forward := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1, // a watch's events are few bytes
		ModifyResponse: func(answer *http.Response) error {
			if o.Lag != nil && isWatch(answer.Request) {
				answer.Body = delay(answer.Body, o.Lag)
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
			w.WriteHeader(http.StatusBadGateway) // the client is gone, or will see that the server is
		},
	}
	p.server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.count(r)
		if o.Seen != nil {
			o.Seen(r)
		}
		forward.ServeHTTP(w, r)
	})}
	go func() {
		if err := p.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			fmt.Fprintf(os.Stderr, "the proxy before the API server has ended: %v\n", err)
		}
	}()
	return p, nil
}

// Close ends the proxy and the connections through it.
func (p *Proxy) Close() { _ = p.server.Close() }

// WriteKubeconfig writes a kubeconfig that leads through the proxy.
func (p *Proxy) WriteKubeconfig(path string) error {
	c := clientcmdapi.NewConfig()
	c.Clusters["proxy"] = &clientcmdapi.Cluster{Server: "http://" + p.listener.Addr().String()}
	c.Contexts["proxy"] = &clientcmdapi.Context{Cluster: "proxy"}
	c.CurrentContext = "proxy"
	return clientcmd.WriteToFile(*c, path)
}

// Counts is how many requests of each kind came by.
func (p *Proxy) Counts() map[Request]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.counts)
}

func (p *Proxy) count(r *http.Request) {
	kind := Request{r.Method, resource(r.URL.Path)}
	if isWatch(r) {
		kind.Verb = "watch"
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts[kind]++
}

func isWatch(r *http.Request) bool {
	v := r.URL.Query().Get("watch")
	return r.Method == http.MethodGet && (v == "true" || v == "1")
}

// resource reads the resource from a path of the Kubernetes API:
// /api/v1[/namespaces/NAMESPACE]/RESOURCE[/NAME[/SUBRESOURCE]], with /apis/GROUP/VERSION for /api/v1 in other groups.
func resource(path string) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		parts = parts[3:]
	default:
		return path
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	if len(parts) > 2 {
		return parts[0] + "/" + parts[2]
	}
	return parts[0]
}
