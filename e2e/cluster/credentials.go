package cluster

import (
	"os"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"idlecount.dev/idlecount/e2e/cluster/internal/pki"
)

// masters is the group that the API server's authorizer lets do everything.
const masters = "system:masters"

// writeCredentials makes all keys, certificates and kubeconfigs of a new cluster.
func writeCredentials(l layout, now time.Time) error {
	if err := os.MkdirAll(l.pki(""), 0o700); err != nil {
		return err
	}
	if err := os.MkdirAll(l.config(""), 0o700); err != nil {
		return err
	}
	ca, err := pki.NewAuthority("idlecount-cluster", now)
	if err != nil {
		return err
	}
	if err := ca.Write(l.pki(""), "ca"); err != nil {
		return err
	}
	steps := []func() error{
		func() error { return writeEtcdPairs(l, now) },
		func() error { return writeServers(l, ca, now) },
		func() error { return writeClients(l, ca, now) },
		func() error { return writeTokenKeys(l) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// writeEtcdPairs uses an authority of its own: a client certificate of the API server must not open etcd.
func writeEtcdPairs(l layout, now time.Time) error {
	ca, err := pki.NewAuthority("idlecount-cluster-etcd", now)
	if err != nil {
		return err
	}
	server, err := ca.Peer("etcd", now, "127.0.0.1", "localhost")
	if err != nil {
		return err
	}
	client, err := ca.Client("kube-apiserver", now)
	if err != nil {
		return err
	}
	return writePairs(l, map[string]pki.Pair{"etcd-ca": ca.Pair, "etcd": server, "etcd-client": client})
}

func writeServers(l layout, ca *pki.Authority, now time.Time) error {
	hosts := map[string][]string{
		"kube-apiserver": {
			nodeIP, apiClusterIP, "127.0.0.1", "localhost", "kubernetes", "kubernetes.default",
			"kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
		},
		"kubelet":  {nodeIP, NodeName},
		"loopback": {"127.0.0.1", "localhost"},
	}
	pairs := map[string]pki.Pair{}
	for name, names := range hosts {
		pair, err := ca.Server(name, now, names...)
		if err != nil {
			return err
		}
		pairs[name] = pair
	}
	// For API servers behind the aggregation layer. Nobody holds a certificate of this authority.
	frontProxy, err := pki.NewAuthority("idlecount-cluster-front-proxy", now)
	if err != nil {
		return err
	}
	pairs["front-proxy-ca"] = frontProxy.Pair
	return writePairs(l, pairs)
}

func writeClients(l layout, ca *pki.Authority, now time.Time) error {
	kubelet, err := ca.Client("kube-apiserver-kubelet-client", now, masters)
	if err != nil {
		return err
	}
	if err := kubelet.Write(l.pki(""), "kubelet-client"); err != nil {
		return err
	}
	clients := []struct {
		user, file string
		groups     []string
	}{
		{"idlecount-admin", l.kubeconfig(), []string{masters}},
		{"system:kube-controller-manager", l.clientConfig(ControllerManager), nil},
		{"system:kube-scheduler", l.clientConfig(Scheduler), nil},
		{"system:node:" + NodeName, l.clientConfig(Kubelet), []string{"system:nodes"}},
		{"kwok", l.clientConfig(KWOK), []string{masters}},
	}
	for _, c := range clients {
		pair, err := ca.Client(c.user, now, c.groups...)
		if err != nil {
			return err
		}
		if err := clientcmd.WriteToFile(kubeconfigFor(c.user, ca.Cert, pair), c.file); err != nil {
			return err
		}
	}
	return nil
}

func kubeconfigFor(user string, ca []byte, pair pki.Pair) clientcmdapi.Config {
	const name = "idlecount-local"
	return clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: "https://" + apiAddress, CertificateAuthorityData: ca}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{user: {ClientCertificateData: pair.Cert, ClientKeyData: pair.Key}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: user}},
		CurrentContext: name,
	}
}

func writeTokenKeys(l layout) error {
	private, public, err := pki.NewSigningKey()
	if err != nil {
		return err
	}
	if err := os.WriteFile(l.pki("service-accounts.key"), private, 0o600); err != nil {
		return err
	}
	return os.WriteFile(l.pki("service-accounts.pub"), public, 0o644)
}

func writePairs(l layout, pairs map[string]pki.Pair) error {
	for name, pair := range pairs {
		if err := pair.Write(l.pki(""), name); err != nil {
			return err
		}
	}
	return nil
}
