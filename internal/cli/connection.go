package cli

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/internal/version"
)

// connection is how a command finds the API server: kubectl's flags, environment and files.
type connection struct {
	flags *genericclioptions.ConfigFlags
}

func newConnection() connection {
	flags := genericclioptions.NewConfigFlags(false)    // read anew each time: connectAs may change the context
	flags.CacheDir, flags.DisableCompression = nil, nil // of discovery and of big downloads: we have neither
	return connection{flags}
}

func (c connection) addFlags(set *pflag.FlagSet) { c.flags.AddFlags(set) }

// chosen says whether the user named a cluster, on the command line or with KUBECONFIG.
func (c connection) chosen() bool {
	f := c.flags
	return cmp.Or(*f.KubeConfig, *f.Context, *f.ClusterName, *f.APIServer, os.Getenv("KUBECONFIG")) != ""
}

// namespace is the one of -n, of the context, or of the pod that this runs in; "default" at last.
func (c connection) namespace() (string, error) {
	namespace, _, err := c.flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return "", fmt.Errorf("read the kubeconfig: %w", err)
	}
	return namespace, nil
}

// cluster is an API server that a command talks to, and how it was found, for messages.
type cluster struct {
	kubernetes.Interface
	server string
	source string
}

// connect makes the client. It sends nothing.
func (c connection) connect() (*cluster, error) {
	cfg, err := c.flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	source, found := c.source()
	switch {
	case found:
	case cfg.BearerTokenFile == "":
		return nil, errors.New("no cluster is named: " + source + ". Give --kubeconfig or --server, set KUBECONFIG, or run in a pod with a service account")
	default:
		source = "the service account of this pod"
	}
	return dial(cfg, source)
}

// connectAs is connect, but where the user names no cluster, the connection keys of the configuration come first:
// GitLab's meaning of [runners.kubernetes] host, context, cert_file, key_file and ca_file.
func (c connection) connectAs(cfg *config.Config) (*cluster, error) {
	if c.chosen() {
		return c.connect()
	}
	first, path, err := sameConnection(cfg.Runners)
	if err != nil {
		return nil, err
	}
	if first.Host != "" {
		return dial(&rest.Config{Host: first.Host, TLSClientConfig: rest.TLSClientConfig{
			CertFile: first.CertFile, KeyFile: first.KeyFile, CAFile: first.CAFile,
		}}, path+".kubernetes.host")
	}
	if first.Context != "" {
		*c.flags.Context = first.Context
	}
	return c.connect()
}

// sameConnection is the connection of all runners, with the path of the first: one manager manages one cluster.
func sameConnection(runners []config.Runner) (config.Kubernetes, string, error) {
	var first config.Kubernetes
	var path string
	for _, r := range runners {
		if !r.Managed() {
			continue
		}
		k := r.Kubernetes
		k = config.Kubernetes{Host: k.Host, Context: k.Context, CertFile: k.CertFile, KeyFile: k.KeyFile, CAFile: k.CAFile}
		switch {
		case path == "":
			first, path = k, r.Path
		case k.Host != first.Host || k.Context != first.Context || k.CertFile != first.CertFile || k.KeyFile != first.KeyFile || k.CAFile != first.CAFile:
			return first, "", fmt.Errorf("%s.kubernetes and %s.kubernetes name two API servers (host, context, cert_file, key_file, ca_file): "+
				"run one manager for each, with a configuration of its own", path, r.Path)
		}
	}
	return first, path, nil
}

// dialTimeout bounds how long a command waits for a server that doesn't answer at all.
const dialTimeout = 5 * time.Second

func dial(cfg *rest.Config, source string) (*cluster, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent = "idlecount/" + version.String()
	cfg.ContentType, cfg.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json"
	// The API server's own priority and fairness does the throttling; the pool bounds its batches itself.
	cfg.QPS = -1
	cfg.Dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("make a client for %s (%s): %w", cfg.Host, source, err)
	}
	return &cluster{client, cfg.Host, source}, nil
}

// source says where the connection comes from, and whether anything names one but a pod's service account.
func (c connection) source() (string, bool) {
	f := c.flags
	if *f.APIServer != "" {
		return "--server", true
	}
	loader := f.ToRawKubeConfigLoader()
	raw, err := loader.RawConfig()
	files := loader.ConfigAccess().GetLoadingPrecedence()
	if *f.KubeConfig != "" {
		files = []string{*f.KubeConfig}
	}
	list := strings.Join(files, string(filepath.ListSeparator))
	if err != nil || len(raw.Clusters) == 0 {
		return "there is no cluster in " + list, false
	}
	return fmt.Sprintf("context %q of %s", cmp.Or(*f.Context, raw.CurrentContext), list), true
}
