package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"idlecount.dev/idlecount/e2e/cluster/internal/process"
)

// healthInterval is how often a starting component is asked. Nothing announces that a component is ready.
const healthInterval = 50 * time.Millisecond

// healthTimeout bounds one question.
const healthTimeout = 3 * time.Second

// check asks the component by its health endpoint whether it works.
func (c *Cluster) check(ctx context.Context, component Component) error {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	switch component {
	case Registry:
		return c.get(ctx, "http://"+registryAddress+"/v2/")
	case Etcd:
		return c.get(ctx, "http://"+etcdHealthAddress+"/readyz")
	case APIServer:
		return c.get(ctx, "https://"+apiAddress+"/readyz")
	case ControllerManager:
		return c.get(ctx, "https://"+controllerAddress+"/healthz")
	case Scheduler:
		return c.get(ctx, "https://"+schedulerAddress+"/readyz")
	case Kubelet:
		return c.get(ctx, "http://"+kubeletHealth+"/healthz")
	case KWOK:
		return c.get(ctx, "http://"+kwokAddress+"/healthz")
	case Containerd:
		return c.ctr(ctx, "version")
	}
	return fmt.Errorf("no component %q", component)
}

func (c *Cluster) get(ctx context.Context, url string) error {
	// A client of its own each time: a connection kept from before a restart would answer wrongly.
	transport := &http.Transport{DisableKeepAlives: true}
	if strings.HasPrefix(url, "https:") {
		pool := x509.NewCertPool()
		ca, err := os.ReadFile(c.layout.cert("ca"))
		if err != nil {
			return err
		}
		if !pool.AppendCertsFromPEM(ca) {
			return fmt.Errorf("no certificate in %s", c.layout.cert("ca"))
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(response.Body, 4096))
		return fmt.Errorf("%s: %s: %s", url, response.Status, strings.TrimSpace(string(body)))
	}
	return nil
}

// ctr runs containerd's client on the namespace that the kubelet's containers are in.
func (c *Cluster) ctr(ctx context.Context, args ...string) error {
	program := filepath.Join(filepath.Dir(c.definitions[Containerd].Program), "ctr")
	command := strings.Join(args, " ")
	args = append([]string{"--address", c.layout.containerdSocket(), "--namespace", "k8s.io", "--connect-timeout", "1s"}, args...)
	cmd := exec.CommandContext(ctx, program, args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ctr %s: %w: %s", command, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// waitHealthy returns when the component is healthy, or early when its process has ended.
func (c *Cluster) waitHealthy(ctx context.Context, component Component) error {
	var err error
	for {
		if !readRecord(c.layout, component).Alive() {
			return c.explain(component, errors.New("the process has ended"))
		}
		if err = c.check(ctx, component); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return c.explain(component, fmt.Errorf("not healthy (%w): %w", context.Cause(ctx), err))
		case <-time.After(healthInterval):
		}
	}
}

// explain adds to an error where the component's log lies and how it ends.
func (c *Cluster) explain(component Component, err error) error {
	return fmt.Errorf("%s: %w\nits log %s ends with:\n%s", component, err, c.layout.log(component), tail(c.layout.log(component), 10))
}

// tail returns the last lines of a file, as far as they are in its last 16 KiB.
func tail(path string, lines int) string {
	file, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer file.Close()
	const window = 16 << 10
	if info, err := file.Stat(); err == nil && info.Size() > window {
		_, _ = file.Seek(-window, io.SeekEnd)
	}
	content, err := io.ReadAll(file)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(content)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// alive says whether the component's process runs.
func (c *Cluster) alive(component Component) (process.Identity, bool) {
	id := readRecord(c.layout, component)
	return id, id.Alive()
}
