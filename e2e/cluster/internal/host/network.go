// Package host changes and cleans up what a local cluster needs of the machine: addresses, nat rules, cgroups, mounts,
// packages.
//
// It owns how to find what belongs to the cluster (by name, by folder) and how to remove it. It refuses to touch what
// it can't tell apart from something else's.
package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
)

// Network is what the cluster adds to the machine's network.
type Network struct {
	// NodeIP is put on the loopback interface: the kubelet refuses 127.0.0.1 as a node's address.
	NodeIP string
	// Bridge is the interface that CNI's bridge plugin makes.
	Bridge string
	// PodCIDR is what the bridge serves.
	PodCIDR string
	// Service and Backend, both ip:port: connections to the first are sent to the second.
	Service, Backend string
}

// The nat rules live in chains of their own, so that they can be listed and dropped without knowing them.
const (
	natChain         = "IDLECOUNT-NAT"
	masqueradeChain  = "IDLECOUNT-MASQ"
	forwardChain     = "IDLECOUNT-FORWARD"
	inputChain       = "IDLECOUNT-INPUT"
	loopback         = "lo"
	iptablesLockWait = "10" // seconds to wait for another user of iptables
)

// rule is one iptables rule without its -A or -D.
type rule struct {
	table, chain string
	args         []string
}

func (n Network) rules() (chains, rules, jumps []rule) {
	serviceIP, servicePort, _ := strings.Cut(n.Service, ":")
	backendIP, backendPort, _ := strings.Cut(n.Backend, ":")
	chains = []rule{
		{table: "nat", chain: natChain},
		{table: "nat", chain: masqueradeChain},
		{table: "filter", chain: forwardChain},
		{table: "filter", chain: inputChain},
	}
	rules = []rule{
		{"nat", natChain, []string{"-d", serviceIP + "/32", "-p", "tcp", "--dport", servicePort, "-j", "DNAT", "--to-destination", n.Backend}},
		// Pods see each other and the node by their own address, the rest of the world sees the machine.
		{"nat", masqueradeChain, []string{"-s", n.PodCIDR, "!", "-d", n.PodCIDR, "!", "-o", loopback, "-j", "MASQUERADE"}},
		{"filter", forwardChain, []string{"-i", n.Bridge, "-j", "ACCEPT"}},
		{"filter", forwardChain, []string{"-o", n.Bridge, "-j", "ACCEPT"}},
		// The API, whatever a firewall of the machine says about unknown interfaces.
		{"filter", inputChain, []string{"-i", n.Bridge, "-d", backendIP + "/32", "-p", "tcp", "--dport", backendPort, "-j", "ACCEPT"}},
	}
	jumps = []rule{
		{"nat", "PREROUTING", []string{"-j", natChain}},
		{"nat", "OUTPUT", []string{"-j", natChain}},
		{"nat", "POSTROUTING", []string{"-j", masqueradeChain}},
		// First, since Docker sets the chain's policy to DROP.
		{"filter", "FORWARD", []string{"-j", forwardChain}},
		{"filter", "INPUT", []string{"-j", inputChain}},
	}
	return chains, rules, jumps
}

// Setup adds the address and the rules. It may be called again at any time.
func (n Network) Setup(ctx context.Context) error {
	has, err := n.hasAddress()
	if err != nil {
		return err
	}
	if !has {
		if _, err := run(ctx, "ip", "address", "add", n.NodeIP+"/32", "dev", loopback); err != nil {
			return err
		}
	}
	chains, rules, jumps := n.rules()
	for _, c := range chains {
		if _, err := iptables(ctx, c.table, "-n", "-L", c.chain); err != nil {
			if _, err := iptables(ctx, c.table, "-N", c.chain); err != nil {
				return err
			}
		}
		if _, err := iptables(ctx, c.table, "-F", c.chain); err != nil {
			return err
		}
	}
	for _, r := range rules {
		if _, err := iptables(ctx, r.table, append([]string{"-A", r.chain}, r.args...)...); err != nil {
			return err
		}
	}
	for _, j := range jumps {
		if _, err := iptables(ctx, j.table, append([]string{"-C", j.chain}, j.args...)...); err == nil {
			continue
		}
		if _, err := iptables(ctx, j.table, append([]string{"-I", j.chain}, j.args...)...); err != nil {
			return err
		}
	}
	return nil
}

// Remove takes away what Setup added and the bridge, as far as it is there.
func (n Network) Remove(ctx context.Context) error {
	var errs []error
	chains, _, jumps := n.rules()
	for _, j := range jumps {
		// Each -D takes one away; a second one can only come from two set-ups at once, which the lock excludes.
		if _, err := iptables(ctx, j.table, append([]string{"-C", j.chain}, j.args...)...); err != nil {
			continue
		}
		_, err := iptables(ctx, j.table, append([]string{"-D", j.chain}, j.args...)...)
		errs = append(errs, err)
	}
	for _, c := range chains {
		if _, err := iptables(ctx, c.table, "-n", "-L", c.chain); err != nil {
			continue
		}
		_, flushed := iptables(ctx, c.table, "-F", c.chain)
		_, deleted := iptables(ctx, c.table, "-X", c.chain)
		errs = append(errs, flushed, deleted)
	}
	// Pods' interfaces go with their namespaces, but the kernel takes its time.
	for _, name := range append(n.ports(), n.Bridge) {
		if !hasInterface(name) {
			continue
		}
		if _, err := run(ctx, "ip", "link", "delete", name); err != nil && hasInterface(name) {
			errs = append(errs, err)
		}
	}
	has, err := n.hasAddress()
	errs = append(errs, err)
	if has {
		_, err := run(ctx, "ip", "address", "delete", n.NodeIP+"/32", "dev", loopback)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Leftovers names what of the network is still there.
func (n Network) Leftovers(ctx context.Context) []string {
	var left []string
	if has, err := n.hasAddress(); has || err != nil {
		left = append(left, "address "+n.NodeIP+" on "+loopback)
	}
	for _, name := range append(n.ports(), n.Bridge) {
		if hasInterface(name) {
			left = append(left, "interface "+name)
		}
	}
	chains, _, _ := n.rules()
	for _, c := range chains {
		if _, err := iptables(ctx, c.table, "-n", "-L", c.chain); err == nil {
			left = append(left, "iptables chain "+c.chain+" in table "+c.table)
		}
	}
	return left
}

// InPlace says whether Setup's work is still there.
func (n Network) InPlace(ctx context.Context) bool {
	has, err := n.hasAddress()
	if !has || err != nil {
		return false
	}
	_, rules, jumps := n.rules()
	for _, r := range append(rules, jumps...) {
		if _, err := iptables(ctx, r.table, append([]string{"-C", r.chain}, r.args...)...); err != nil {
			return false
		}
	}
	return true
}

func (n Network) hasAddress() (bool, error) {
	lo, err := net.InterfaceByName(loopback)
	if err != nil {
		return false, err
	}
	addresses, err := lo.Addrs()
	if err != nil {
		return false, err
	}
	for _, a := range addresses {
		if ip, _, err := net.ParseCIDR(a.String()); err == nil && ip.String() == n.NodeIP {
			return true, nil
		}
	}
	return false, nil
}

// ports returns the interfaces on the bridge: one per pod.
func (n Network) ports() []string {
	entries, err := os.ReadDir("/sys/class/net/" + n.Bridge + "/brif")
	if err != nil {
		return nil // no bridge, no ports
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

func hasInterface(name string) bool {
	_, err := net.InterfaceByName(name)
	return err == nil
}

// ResetConnections closes all established TCP connections of a listening ip:port with a reset and returns how many
// there were. The listener is untouched.
func ResetConnections(ctx context.Context, address string) (int, error) {
	ip, port, err := net.SplitHostPort(address)
	if err != nil {
		return 0, err
	}
	out, err := run(ctx, "ss", "--no-header", "--kill", "--tcp", "state", "established", "src", ip, "sport", "=", ":"+port)
	if err != nil {
		return 0, err
	}
	return bytes.Count(out, []byte("\n")), nil
}

// Listener names the process that listens on a TCP port, for messages.
func Listener(ctx context.Context, port string) string {
	out, err := run(ctx, "ss", "--no-header", "--listening", "--tcp", "--numeric", "--processes", "sport", "=", ":"+port)
	if err != nil {
		return "another process"
	}
	return listener(string(out))
}

// listener reads ss's users:(("name",pid=1,fd=2)).
func listener(out string) string {
	found := regexp.MustCompile(`\(\("([^"]*)",pid=(\d+)`).FindStringSubmatch(out)
	if found == nil {
		return "another process"
	}
	return fmt.Sprintf("the process %s (pid %s)", found[1], found[2])
}

func iptables(ctx context.Context, table string, args ...string) ([]byte, error) {
	return run(ctx, "iptables", append([]string{"-w", iptablesLockWait, "-t", table}, args...)...)
}

func run(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return out, nil
}
