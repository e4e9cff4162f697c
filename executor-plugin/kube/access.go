package kube

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"idlecount.dev/idlecount/config"
)

// Access is how to reach the cluster.
type Access struct {
	Kubeconfig string // a file; "" = see Config
	Context    string // of the kubeconfig; "" = [runners.kubernetes] context, else the current one
	FromEnv    string // $KUBECONFIG, may name several files
}

// Config finds the cluster: the kubeconfig that was named, $KUBECONFIG, the keys host and so on of [runners.kubernetes], the
// service account of the pod that this runs in, ~/.kube/config, whichever is there first.
func Config(access Access, table config.Kubernetes, userAgent string) (*rest.Config, error) {
	cfg, err := find(access, table)
	if err != nil {
		return nil, err
	}
	cfg.UserAgent = userAgent
	cfg.QPS = -1 // a driver makes a handful of calls
	cfg.WarningHandler = rest.NoWarnings{}
	cfg.ContentType = "application/vnd.kubernetes.protobuf"
	cfg.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	return cfg, nil
}

func find(access Access, table config.Kubernetes) (*rest.Config, error) {
	if access.Kubeconfig == "" && access.FromEnv == "" {
		if table.Host != "" {
			return &rest.Config{
				Host:            table.Host,
				TLSClientConfig: rest.TLSClientConfig{CertFile: table.CertFile, KeyFile: table.KeyFile, CAFile: table.CAFile},
			}, nil
		}
		cfg, err := rest.InClusterConfig()
		if !errors.Is(err, rest.ErrNotInCluster) {
			return cfg, err
		}
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = access.Kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: access.Context}
	if access.Context == "" {
		overrides.CurrentContext = table.Context
	}
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	switch {
	case err == nil:
		return cfg, nil
	case clientcmd.IsEmptyConfig(err) && access.Kubeconfig == "" && access.FromEnv != "":
		return nil, fmt.Errorf("KUBECONFIG is %s, %s", access.FromEnv, emptiness(access.FromEnv))
	case clientcmd.IsEmptyConfig(err) && access.Kubeconfig == "":
		return nil, errors.New("no cluster is configured: give --kubeconfig, set KUBECONFIG or [runners.kubernetes] host, or run in a pod with a service account")
	default:
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
}

// emptiness says why files of $KUBECONFIG name no cluster.
func emptiness(list string) string {
	for _, file := range filepath.SplitList(list) {
		if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
			return "which names no cluster"
		}
	}
	return "and there is no such file"
}
