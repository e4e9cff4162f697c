package cluster

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

func TestNameservers(t *testing.T) {
	for name, c := range map[string]struct {
		resolvConf string
		want       []string
	}{
		"a server":                             {"nameserver 10.0.0.53\n", []string{"10.0.0.53"}},
		"comments and options are no servers":  {"# nameserver 1.1.1.1\noptions ndots:5\nnameserver 10.0.0.53", []string{"10.0.0.53"}},
		"a stub on loopback can't be reached":  {"nameserver 127.0.0.53\nnameserver 10.0.0.53\n", []string{"10.0.0.53"}},
		"only a stub: the node, which refuses": {"nameserver 127.0.0.53\n", []string{nodeIP}},
		"pods have no IPv6":                    {"nameserver fd00::1\nnameserver 10.0.0.53\n", []string{"10.0.0.53"}},
		"at most three":                        {"nameserver 10.0.0.1\nnameserver 10.0.0.2\nnameserver 10.0.0.3\nnameserver 10.0.0.4\n", []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}},
		"nothing":                              {"", []string{nodeIP}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, nameservers(c.resolvConf))
		})
	}
}

func files(t *testing.T, l layout, tools tools) map[string][]byte {
	t.Helper()
	all, err := configFiles(l, tools)
	require.NoError(t, err)
	return all
}

func TestConfigFilesNameThePathsOfTheirCluster(t *testing.T) {
	l := layout{folder: "/srv/c"}
	all := files(t, l, tools{runc: "/opt/runc", cniPlugins: "/opt/plugins", resolver: resolver{file: "/etc/r", nameservers: []string{"9.9.9.9"}}})

	var kubelet struct {
		CgroupRoot               string            `json:"cgroupRoot"`
		ContainerRuntimeEndpoint string            `json:"containerRuntimeEndpoint"`
		ClusterDNS               []string          `json:"clusterDNS"`
		ResolvConf               string            `json:"resolvConf"`
		MaxPods                  int               `json:"maxPods"`
		EvictionHard             map[string]string `json:"evictionHard"`
	}
	require.NoError(t, yaml.Unmarshal(all["/srv/c/config/kubelet.yaml"], &kubelet))
	require.Equal(t, "/idlecount-cluster", kubelet.CgroupRoot)
	require.Equal(t, "unix:///run/idlecount-cluster/containerd.sock", kubelet.ContainerRuntimeEndpoint)
	require.Equal(t, []string{"9.9.9.9"}, kubelet.ClusterDNS)
	require.Equal(t, "/etc/r", kubelet.ResolvConf)
	require.Equal(t, 250, kubelet.MaxPods)
	require.Equal(t, "1%", kubelet.EvictionHard["nodefs.available"])

	containerd := string(all["/srv/c/config/containerd.toml"])
	require.NotContains(t, containerd, "%!", "a verb of the template has no argument")
	for _, path := range []string{"/opt/runc", "/opt/plugins", "/srv/c/cni/conf", "/srv/c/containerd/certs.d", pauseImage} {
		require.Contains(t, containerd, `"`+path+`"`)
	}

	var cni struct {
		Plugins []struct {
			IPAM struct {
				Ranges [][]struct{ Subnet string }
			}
		}
	}
	require.NoError(t, json.Unmarshal(all["/srv/c/cni/conf/10.conflist"], &cni))
	require.Equal(t, podCIDR, cni.Plugins[0].IPAM.Ranges[0][0].Subnet)

	for _, host := range []string{"127.0.0.1:5990", "localhost:5990"} {
		require.Equal(t, "server = \"http://127.0.0.1:5990\"\n", string(all["/srv/c/containerd/certs.d/"+host+"/hosts.toml"]))
	}
}

func TestFingerprint(t *testing.T) {
	l := layout{folder: "/srv/c"}
	programs := programs{"etcd": "/srv/c/bin/etcd-1/etcd", "containerd": "/srv/c/bin/containerd-1/containerd"}
	machine := tools{runc: "/usr/sbin/runc", cniPlugins: "/usr/lib/cni"}
	first, err := fingerprint(define(l, programs), files(t, l, machine))
	require.NoError(t, err)

	again, err := fingerprint(define(l, programs), files(t, l, machine))
	require.NoError(t, err)
	require.Equal(t, first, again, "nothing in it may be random")

	programs["etcd"] = "/srv/c/bin/etcd-2/etcd"
	otherProgram, err := fingerprint(define(l, programs), files(t, l, machine))
	require.NoError(t, err)
	require.NotEqual(t, first, otherProgram)

	programs["etcd"] = "/srv/c/bin/etcd-1/etcd"
	machine.runc = "/usr/local/sbin/runc"
	otherFile, err := fingerprint(define(l, programs), files(t, l, machine))
	require.NoError(t, err)
	require.NotEqual(t, first, otherFile)
}
