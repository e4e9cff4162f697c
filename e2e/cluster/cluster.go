package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"idlecount.dev/idlecount/e2e/cluster/internal/process"
)

// ErrNotRunning is what Find wraps when there is no usable cluster.
var ErrNotRunning = errors.New("the local cluster is not running")

// Options say what Up makes.
type Options struct {
	// Folder for the cluster's files, DefaultFolder if empty.
	Folder string
	// KWOKNodes is how many KWOK nodes there shall be; nil leaves them as they are.
	KWOKNodes *int
	// Progress gets a line for each step that takes time; nil for none.
	Progress io.Writer
}

func (o Options) layout() layout {
	if o.Folder == "" {
		return layout{folder: DefaultFolder}
	}
	return layout{folder: o.Folder}
}

func (o Options) progress() io.Writer {
	if o.Progress == nil {
		return io.Discard
	}
	return o.Progress
}

// Cluster is the handle of a local cluster. It holds no connection and no lock: all that it says is read from the
// cluster's files and processes when it is asked.
type Cluster struct {
	layout      layout
	definitions map[Component]definition
}

// Find returns the cluster that runs on this machine, or an error that wraps ErrNotRunning and says what is missing.
// A cluster of which a component was stopped is found as long as its API server answers.
func Find(ctx context.Context) (*Cluster, error) {
	folder, err := owner()
	if err != nil {
		return nil, err
	}
	if folder == "" {
		return nil, fmt.Errorf("%w: none was started since the machine was", ErrNotRunning)
	}
	c, s, err := load(layout{folder: folder})
	if err != nil {
		return nil, err
	}
	boot, err := process.BootID()
	if err != nil {
		return nil, err
	}
	if s == nil || !s.Complete || s.Boot != boot {
		return nil, fmt.Errorf("%w: the one in %s was not completed", ErrNotRunning, folder)
	}
	if err := c.check(ctx, APIServer); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrNotRunning, APIServer, err)
	}
	return c, nil
}

func load(l layout) (*Cluster, *state, error) {
	s, err := readState(l)
	if errors.Is(err, os.ErrPermission) {
		return nil, nil, fmt.Errorf("the local cluster belongs to root, this must run as root too: %w", err)
	}
	if err != nil || s == nil {
		return nil, nil, err
	}
	return &Cluster{layout: l, definitions: s.Definitions}, s, nil
}

// Kubeconfig returns the path of a kubeconfig of an administrator.
func (c *Cluster) Kubeconfig() string { return c.layout.kubeconfig() }

// Registry returns host:port of the registry: an image pushed there as <host:port>/<name>:<tag> over plain HTTP is
// pulled under the same name by pods. go-containerregistry takes the address for an insecure one by itself.
func (c *Cluster) Registry() string { return registryAddress }

// RESTConfig returns a configuration for an administrator's clients.
func (c *Cluster) RESTConfig() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		return nil, err
	}
	// The address only exists on this machine: HTTPS_PROXY does not apply.
	config.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	return config, nil
}

// LogFile returns the path of a component's log.
func (c *Cluster) LogFile(component Component) string { return c.layout.log(component) }
