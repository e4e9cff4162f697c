// Package cluster runs a real Kubernetes on this machine without Docker and without any registry: etcd, the control
// plane, containerd and one kubelet as plain processes, built from their own Go modules, plus KWOK nodes on demand.
//
// It owns the processes, their files below one folder (DefaultFolder), and what they need of the machine: an address
// on the loopback interface, nat rules, a bridge, a cgroup, mounts. There can be one such cluster on a machine. Up
// makes or repairs it, Find finds it, Down removes all of it but the programs that took long to build. Stop, Kill,
// Restart and CutConnections are the faults that tests inject.
//
// Targets hide from a demo whether it runs on this cluster, on kind, or on one that exists already.
//
// What is here on purpose differs from a production cluster in this: no kube-proxy and no cluster DNS (pods reach the
// API at its cluster IP through a nat rule), one etcd member, no leader election, no eviction for a full disk, no
// limit on events, and more requests a second from the controller manager and the scheduler than their defaults allow.
// etcd syncs its writes to disk, so that latencies measured here are not better than real ones.
package cluster
