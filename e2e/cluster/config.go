package cluster

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// configFiles returns the configuration files of the components by their path. They hold no secrets and nothing
// random, so that equal files mean an equal cluster.
func configFiles(l layout, tools tools) (map[string][]byte, error) {
	kubelet, err := kubeletConfig(l, tools.resolver)
	if err != nil {
		return nil, err
	}
	cni, err := cniConfig(l)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{
		l.config("kubelet.yaml"):             kubelet,
		l.config("containerd.toml"):          containerdConfig(l, tools),
		l.path("cni", "conf", "10.conflist"): cni,
	}
	// containerd asks the folder of the host that stands in the image's name.
	for _, name := range []string{registryAddress, strings.Replace(registryAddress, "127.0.0.1", "localhost", 1)} {
		files[l.path("containerd", "certs.d", name, "hosts.toml")] = fmt.Appendf(nil, "server = %q\n", "http://"+registryAddress)
	}
	return files, nil
}

// tools are the paths of what the machine brings.
type tools struct {
	runc       string
	cniPlugins string
	resolver   resolver
}

// resolver is how pods look up names. There is no cluster DNS: the machine's name servers answer them.
type resolver struct {
	file        string
	nameservers []string
}

func kubeletConfig(l layout, r resolver) ([]byte, error) {
	return yaml.Marshal(map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1",
		"kind":       "KubeletConfiguration",

		"address": nodeIP, "port": json.Number(port(kubeletAddress)),
		"healthzBindAddress": "127.0.0.1", "healthzPort": json.Number(port(kubeletHealth)),
		"tlsCertFile": l.cert("kubelet"), "tlsPrivateKeyFile": l.key("kubelet"),
		"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": false},
			"webhook":   map[string]any{"enabled": true},
			"x509":      map[string]any{"clientCAFile": l.cert("ca")},
		},
		"authorization": map[string]any{"mode": "Webhook"},

		"containerRuntimeEndpoint": "unix://" + l.containerdSocket(),
		"cgroupDriver":             "cgroupfs",
		"cgroupRoot":               "/" + cgroup().Name,
		"failCgroupV1":             false,
		"failSwapOn":               false,
		// The node is the user's machine: nothing is reserved and nothing enforced on it as a whole.
		"enforceNodeAllocatable": []string{"none"},
		// It would leave chains behind that only nodes with kube-proxy need.
		"makeIPTablesUtilChains": false,
		"podLogsDir":             l.podLogs(),
		"volumePluginDir":        l.path("kubelet", "volume-plugins"),
		"containerLogMaxSize":    "20Mi",
		"containerLogMaxFiles":   3,

		// Without a server the kubelet warns in an Event on each pod. It searches the cluster's domains all the same.
		"clusterDomain": "cluster.local",
		"clusterDNS":    r.nameservers,
		"resolvConf":    r.file,

		"maxPods": 250,
		// No quotas that a test run could hit and no pod of a user could.
		"eventRecordQPS": 0, "registryPullQPS": 0,
		"serializeImagePulls": false,

		// The disk is the user's and may be rather full. Images are never removed behind a test's back.
		"imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 99,
		"evictionHard": map[string]string{
			"memory.available": "100Mi", "nodefs.available": "1%", "nodefs.inodesFree": "1%", "imagefs.available": "1%", "imagefs.inodesFree": "1%",
		},
	})
}

func containerdConfig(l layout, t tools) []byte {
	return fmt.Appendf(nil, `version = 4
root = %[1]q
state = %[2]q
imports = []
disabled_plugins = ["io.containerd.nri.v1.nri"]

[plugins."io.containerd.server.v1.grpc"]
  address = %[3]q
[plugins."io.containerd.server.v1.ttrpc"]
  address = %[4]q
[plugins."io.containerd.shim.v1.manager"]
  socket_dir = %[5]q
[plugins."io.containerd.internal.v1.opt"]
  path = %[6]q

[plugins."io.containerd.cri.v1.images"]
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = %[7]q
  [plugins."io.containerd.cri.v1.images".registry]
    config_path = %[8]q

[plugins."io.containerd.cri.v1.runtime"]
  # Without CAP_SYS_RESOURCE nobody may lower an OOM score, and pods would fail to start.
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      BinaryName = %[9]q
      Root = %[10]q
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = [%[11]q]
    conf_dir = %[12]q
`,
		l.path("containerd", "root"), l.containerdState(), l.containerdSocket(), l.containerdSocket()+".ttrpc",
		filepath.Join(runtimeFolder, "s"), l.path("containerd", "opt"), pauseImage, l.path("containerd", "certs.d"),
		t.runc, filepath.Join(runtimeFolder, "runc"), t.cniPlugins, l.path("cni", "conf"))
}

func cniConfig(l layout) ([]byte, error) {
	return json.MarshalIndent(map[string]any{
		"cniVersion": "1.0.0",
		"name":       "idlecount",
		"plugins": []map[string]any{{
			"type":        "bridge",
			"bridge":      bridge,
			"isGateway":   true,
			"hairpinMode": true,
			// Masquerading is one rule for all pods (host.Network): a rule per pod costs time at each start and stays
			// behind when the machine stops hard.
			"ipMasq": false,
			"ipam": map[string]any{
				"type":    "host-local",
				"ranges":  [][]map[string]any{{{"subnet": podCIDR}}},
				"routes":  []map[string]any{{"dst": "0.0.0.0/0"}},
				"dataDir": l.path("cni", "reservations"),
			},
		}},
	}, "", "  ")
}

// nameservers reads the name servers from the text of a resolv.conf. A server on loopback can't be reached from a pod;
// if there is none else, the node itself is named, which refuses at once instead of letting lookups time out.
func nameservers(resolvConf string) []string {
	var servers []string
	for line := range strings.Lines(resolvConf) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != "nameserver" {
			continue
		}
		if ip := net.ParseIP(fields[1]); ip != nil && !ip.IsLoopback() && ip.To4() != nil {
			servers = append(servers, fields[1])
		}
	}
	if len(servers) == 0 {
		return []string{nodeIP}
	}
	return servers[:min(len(servers), 3)] // glibc's and the kubelet's limit
}

// hostResolver asks systemd-resolved's file of real servers first, as kubeadm does: /etc/resolv.conf names its stub.
func hostResolver() resolver {
	const file = "/etc/resolv.conf"
	for _, file := range []string{"/run/systemd/resolve/resolv.conf", file} {
		if content, err := os.ReadFile(file); err == nil {
			return resolver{file: file, nameservers: nameservers(string(content))}
		}
	}
	return resolver{file: file, nameservers: []string{nodeIP}}
}

func writeFiles(files map[string][]byte) error {
	for path, content := range files {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}
