package cluster

import (
	"path/filepath"
	"strings"

	"idlecount.dev/idlecount/e2e/cluster/internal/host"
)

// DefaultFolder is where the cluster's files lie unless Options.Folder says otherwise.
const DefaultFolder = "/var/lib/idlecount-cluster"

// NodeName is the name of the real node.
const NodeName = "idlecount-node"

// runtimeFolder holds sockets, locks and containerd's state. It is the same for every Folder, since there is one
// cluster on a machine; it is short, since the path of a unix socket must be; and a reboot empties it.
const runtimeFolder = "/run/idlecount-cluster"

// Addresses and networks. The node's address is not in 127.0.0.0/8, which the kubelet and the API server refuse as
// addresses of a node; everything that only the machine itself needs is on loopback. The ports are not the usual ones,
// so that another Kubernetes on the machine is not in the way.
const (
	nodeIP       = "10.99.0.1"
	podCIDR      = "10.98.0.0/20"
	serviceCIDR  = "10.97.0.0/24"
	apiClusterIP = "10.97.0.1" // the first of serviceCIDR: the service "kubernetes"
	bridge       = "idlecount0"

	registryAddress   = "127.0.0.1:5990"
	apiAddress        = nodeIP + ":23790"
	kubeletAddress    = nodeIP + ":23791"
	kubeletHealth     = "127.0.0.1:23792"
	controllerAddress = "127.0.0.1:23793"
	schedulerAddress  = "127.0.0.1:23794"
	kwokAddress       = "127.0.0.1:23795"
	etcdAddress       = "127.0.0.1:23796"
	etcdPeerAddress   = "127.0.0.1:23797"
	etcdHealthAddress = "127.0.0.1:23798"
)

func port(address string) string {
	_, port, _ := strings.Cut(address, ":")
	return port
}

// pauseImage is the sandbox image of every pod; it is imported, so its registry need not exist.
const pauseImage = "cluster.idlecount.dev/pause:1"

// layout names the files of a cluster.
type layout struct{ folder string }

func (l layout) path(elements ...string) string {
	return filepath.Join(append([]string{l.folder}, elements...)...)
}

func (l layout) kubeconfig() string              { return l.path("kubeconfig") }
func (l layout) programs() string                { return l.path("bin") }
func (l layout) state() string                   { return l.path("cluster.json") }
func (l layout) record(c Component) string       { return l.path("run", string(c)+".json") }
func (l layout) log(c Component) string          { return l.path("logs", string(c)+".log") }
func (l layout) config(name string) string       { return l.path("config", name) }
func (l layout) pki(name string) string          { return l.path("pki", name) }
func (l layout) cert(name string) string         { return l.pki(name + ".crt") }
func (l layout) key(name string) string          { return l.pki(name + ".key") }
func (l layout) podLogs() string                 { return l.path("logs", "pods") }
func (l layout) containerdSocket() string        { return filepath.Join(runtimeFolder, "containerd.sock") }
func (l layout) containerdState() string         { return filepath.Join(runtimeFolder, "containerd") }
func (l layout) clientConfig(c Component) string { return l.config(string(c) + ".kubeconfig") }

// temporary lists what Down removes: everything but the programs.
func (l layout) temporary() []string {
	return []string{
		l.kubeconfig(), l.path("run"), l.path("logs"), l.path("config"), l.path("pki"), l.path("etcd"),
		l.path("containerd"), l.path("kubelet"), l.path("registry"), l.path("cni"), l.state(),
	}
}

func network() host.Network {
	return host.Network{
		NodeIP:  nodeIP,
		Bridge:  bridge,
		PodCIDR: podCIDR,
		Service: apiClusterIP + ":443",
		Backend: apiAddress,
	}
}

// cgroup is the root of all of the kubelet's groups, so that nothing of another kubelet or runtime is ever touched.
func cgroup() host.Cgroup { return host.Cgroup{Name: "idlecount-cluster"} }
