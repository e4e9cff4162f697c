package cluster

import (
	"fmt"
	"path/filepath"

	"idlecount.dev/idlecount/e2e/cluster/internal/build"
)

// Component is one process of the cluster.
type Component string

// The components, in the order in which they start.
const (
	Registry          Component = "registry"
	Etcd              Component = "etcd"
	APIServer         Component = "kube-apiserver"
	Containerd        Component = "containerd"
	ControllerManager Component = "kube-controller-manager"
	Scheduler         Component = "kube-scheduler"
	Kubelet           Component = "kubelet"
	KWOK              Component = "kwok"
)

// Components returns all components in the order in which they start. KWOK only runs when there are KWOK nodes.
func Components() []Component {
	return []Component{Registry, Etcd, Containerd, APIServer, ControllerManager, Scheduler, Kubelet, KWOK}
}

// ParseComponent finds the component of that name.
func ParseComponent(name string) (Component, error) {
	for _, c := range Components() {
		if string(c) == name {
			return c, nil
		}
	}
	return "", fmt.Errorf("no component %q, there are %v", name, Components())
}

// definition is how a component is started.
type definition struct {
	Program string   `json:"program"`
	Args    []string `json:"args"`
	Env     []string `json:"env"`
	// Listens are the addresses that must be free before the start.
	Listens []string `json:"listens,omitempty"`
}

// needs returns what must be healthy before the component can start.
func (c Component) needs() []Component {
	switch c {
	case APIServer:
		return []Component{Etcd}
	case ControllerManager, Scheduler, KWOK:
		return []Component{APIServer}
	case Kubelet:
		return []Component{APIServer, Containerd}
	}
	return nil
}

// programs says where each program lies, by its name.
type programs map[string]string

func locate(recipes []build.Recipe, folder string) programs {
	p := programs{}
	for _, r := range recipes {
		for _, program := range r.Programs {
			p[program.Name] = filepath.Join(r.Folder(folder), program.Name)
		}
	}
	return p
}

// define returns how all components are started.
func define(l layout, p programs) map[Component]definition {
	all := map[Component]definition{
		Registry: {
			Program: p["registry"],
			Listens: []string{registryAddress},
			Args:    []string{"-listen", registryAddress, "-data", l.path("registry")},
		},
		Etcd:      {Program: p["etcd"], Listens: []string{etcdAddress, etcdPeerAddress, etcdHealthAddress}, Args: etcdArgs(l)},
		APIServer: {Program: p["kube-apiserver"], Listens: []string{apiAddress}, Args: apiServerArgs(l)},
		Containerd: {
			Program: p["containerd"],
			Args:    []string{"--config", l.config("containerd.toml")},
			// containerd finds its shim through PATH.
			Env: environment(filepath.Dir(p["containerd"])),
		},
		ControllerManager: {Program: p["kube-controller-manager"], Listens: []string{controllerAddress}, Args: controllerArgs(l)},
		Scheduler:         {Program: p["kube-scheduler"], Listens: []string{schedulerAddress}, Args: schedulerArgs(l)},
		Kubelet:           {Program: p["kubelet"], Listens: []string{kubeletAddress, kubeletHealth}, Args: kubeletArgs(l)},
		KWOK:              {Program: p["kwok"], Listens: []string{kwokAddress}, Args: kwokArgs(l)},
	}
	for component, d := range all {
		if d.Env == nil {
			d.Env = environment("")
			all[component] = d
		}
	}
	return all
}

func environment(folder string) []string {
	path := "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	if folder != "" {
		path = folder + ":" + path
	}
	return []string{"PATH=" + path, "HOME=/root", "LANG=C"}
}

func etcdArgs(l layout) []string {
	return []string{
		"--name=local",
		"--data-dir=" + l.path("etcd"),
		"--listen-client-urls=https://" + etcdAddress,
		"--advertise-client-urls=https://" + etcdAddress,
		"--listen-peer-urls=https://" + etcdPeerAddress,
		"--initial-advertise-peer-urls=https://" + etcdPeerAddress,
		"--initial-cluster=local=https://" + etcdPeerAddress,
		"--listen-metrics-urls=http://" + etcdHealthAddress,
		// Whoever can write to etcd is root on this machine, so not every local user may.
		"--client-cert-auth", "--trusted-ca-file=" + l.cert("etcd-ca"),
		"--cert-file=" + l.cert("etcd"), "--key-file=" + l.key("etcd"),
		"--peer-client-cert-auth", "--peer-trusted-ca-file=" + l.cert("etcd-ca"),
		"--peer-cert-file=" + l.cert("etcd"), "--peer-key-file=" + l.key("etcd"),
		"--quota-backend-bytes=8589934592",
		"--log-level=warn",
	}
}

func apiServerArgs(l layout) []string {
	return []string{
		// Bound to the node's address only: that is where clients here, the nat rule for pods and the endpoint of
		// the service "kubernetes" all lead.
		"--bind-address=" + nodeIP, "--advertise-address=" + nodeIP, "--secure-port=" + port(apiAddress),
		"--service-cluster-ip-range=" + serviceCIDR,
		"--etcd-servers=https://" + etcdAddress,
		"--etcd-cafile=" + l.cert("etcd-ca"),
		"--etcd-certfile=" + l.cert("etcd-client"), "--etcd-keyfile=" + l.key("etcd-client"),
		"--tls-cert-file=" + l.cert("kube-apiserver"), "--tls-private-key-file=" + l.key("kube-apiserver"),
		"--client-ca-file=" + l.cert("ca"),
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-signing-key-file=" + l.pki("service-accounts.key"),
		"--service-account-key-file=" + l.pki("service-accounts.pub"),
		"--kubelet-certificate-authority=" + l.cert("ca"),
		"--kubelet-client-certificate=" + l.cert("kubelet-client"),
		"--kubelet-client-key=" + l.key("kubelet-client"),
		// Else exec and logs look up the node's name in DNS.
		"--kubelet-preferred-address-types=InternalIP",
		"--requestheader-client-ca-file=" + l.cert("front-proxy-ca"),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-username-headers=X-Remote-User",
	}
}

func kubeletArgs(l layout) []string {
	return []string{
		"--config=" + l.config("kubelet.yaml"),
		"--kubeconfig=" + l.clientConfig(Kubelet),
		"--root-dir=" + l.path("kubelet"),
		"--hostname-override=" + NodeName,
		"--node-ip=" + nodeIP,
	}
}

func kwokArgs(l layout) []string {
	return []string{
		"--kubeconfig=" + l.clientConfig(KWOK),
		"--config=" + l.config("kwok.yaml"),
		"--manage-all-nodes=false",
		"--manage-nodes-with-annotation-selector=" + kwokKey + "=" + kwokValue,
		"--node-lease-duration-seconds=40",
		"--cidr=" + kwokPodCIDR,
		"--server-address=" + kwokAddress,
	}
}

// The defaults, 20 requests a second for the controller manager and 50 for the scheduler, make a start four seconds
// slower and would be what a test with thousands of pods measures.
const (
	clientQPS   = "--kube-api-qps=300"
	clientBurst = "--kube-api-burst=500"
)

func controllerArgs(l layout) []string {
	return []string{
		"--bind-address=127.0.0.1", "--secure-port=" + port(controllerAddress),
		"--tls-cert-file=" + l.cert("loopback"), "--tls-private-key-file=" + l.key("loopback"),
		"--kubeconfig=" + l.clientConfig(ControllerManager),
		"--authentication-kubeconfig=" + l.clientConfig(ControllerManager),
		"--authorization-kubeconfig=" + l.clientConfig(ControllerManager),
		"--service-account-private-key-file=" + l.pki("service-accounts.key"),
		"--root-ca-file=" + l.cert("ca"),
		"--cluster-signing-cert-file=" + l.cert("ca"), "--cluster-signing-key-file=" + l.key("ca"),
		"--use-service-account-credentials",
		// There is one of it: waiting for a lease would only make starts slow.
		"--leader-elect=false",
		clientQPS, clientBurst,
	}
}

func schedulerArgs(l layout) []string {
	return []string{
		"--bind-address=127.0.0.1", "--secure-port=" + port(schedulerAddress),
		"--tls-cert-file=" + l.cert("loopback"), "--tls-private-key-file=" + l.key("loopback"),
		"--kubeconfig=" + l.clientConfig(Scheduler),
		"--authentication-kubeconfig=" + l.clientConfig(Scheduler),
		"--authorization-kubeconfig=" + l.clientConfig(Scheduler),
		"--leader-elect=false",
		clientQPS, clientBurst,
	}
}
