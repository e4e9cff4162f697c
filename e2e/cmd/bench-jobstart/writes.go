package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"k8s.io/client-go/rest"

	"idlecount.dev/idlecount/e2e/chaos/proxy"
	"idlecount.dev/idlecount/e2e/images"
	"idlecount.dev/idlecount/e2e/runner"
)

// countRequests runs one more warm job through a proxy that notes requests, and returns what `prepare` wrote, and how many
// streams the whole job opened. The jobs that are timed don't go through it.
func (b *bench) countRequests(ctx context.Context) (writes []string, execs, forwards int, err error) {
	seen := &recorder{}
	config := rest.CopyConfig(b.config)
	config.NextProtos = []string{"http/1.1"} // upgraded connections (exec) need it
	p, err := proxy.Start(config, proxy.Options{Seen: seen.note})
	if err != nil {
		return nil, 0, 0, err
	}
	defer p.Close()
	kubeconfig := filepath.Join(b.folder, "proxy.kubeconfig")
	if err := p.WriteKubeconfig(kubeconfig); err != nil {
		return nil, 0, 0, err
	}
	work := b.runner
	work.Environ = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	work.Observe = func(stage string, _ int) {
		if stage == "prepare_script" {
			writes, _, _ = seen.all()
		}
	}
	b.job++
	result := work.Run(ctx, runner.Job{ID: b.job, Image: b.images[images.JobBash], Script: []string{"true"}}, nil)
	if result.Status != runner.Success {
		return nil, 0, 0, fmt.Errorf("the job through the proxy failed: %w\n%s", result.Err, result.Log)
	}
	_, execs, forwards = seen.all()
	return writes, execs, forwards, nil
}

// recorder notes requests which change something, and counts streams, which are none of those: they create no object.
type recorder struct {
	mu              sync.Mutex
	noted           []string // method and path
	execs, forwards int
}

func (r *recorder) note(request *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case strings.HasSuffix(request.URL.Path, "/exec"):
		r.execs++
	case strings.HasSuffix(request.URL.Path, "/portforward"):
		r.forwards++
	case request.Method != http.MethodGet:
		r.noted = append(r.noted, request.Method+" "+request.URL.Path)
	}
}

func (r *recorder) all() (writes []string, execs, forwards int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.noted), r.execs, r.forwards
}
