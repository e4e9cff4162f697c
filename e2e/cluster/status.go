package cluster

import (
	"context"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// The states of a cluster.
const (
	// Running: all components that should run are healthy.
	Running = "running"
	// Degraded: some are not; Up repairs that.
	Degraded = "degraded"
	// Down: there is no cluster.
	IsDown = "down"
)

// Status is what a look at the cluster shows.
type Status struct {
	State      string            `json:"state"`
	Folder     string            `json:"folder"`
	Kubeconfig string            `json:"kubeconfig,omitempty"`
	Registry   string            `json:"registry,omitempty"`
	Components []ComponentStatus `json:"components,omitempty"`
	Nodes      []NodeStatus      `json:"nodes,omitempty"`
}

// ComponentStatus is one process of the cluster.
type ComponentStatus struct {
	Component Component `json:"component"`
	// PID is 0 when it does not run.
	PID     int       `json:"pid,omitempty"`
	Started time.Time `json:"started,omitzero"`
	Healthy bool      `json:"healthy"`
	// Problem is what its health endpoint said, or that it does not run.
	Problem string `json:"problem,omitempty"`
	Log     string `json:"log"`
}

// NodeStatus is one node as the API server knows it.
type NodeStatus struct {
	Name    string `json:"name"`
	KWOK    bool   `json:"kwok"`
	Ready   bool   `json:"ready"`
	Problem string `json:"problem,omitempty"`
	// Pods placed on the node that have not ended.
	Pods int `json:"pods"`
}

// ReadStatus looks at the cluster of the machine. A cluster that is down is a status, not an error. Of the options
// only Folder matters.
func ReadStatus(ctx context.Context, options Options) (Status, error) {
	l, err := options.find()
	if err != nil {
		return Status{}, err
	}
	status := Status{State: IsDown, Folder: l.folder}
	c, s, err := load(l)
	if err != nil || s == nil {
		return status, err
	}
	status.State, status.Kubeconfig, status.Registry = Running, c.Kubeconfig(), c.Registry()
	running := 0
	for _, component := range c.expected() {
		one := c.componentStatus(ctx, component)
		if one.PID > 0 {
			running++
		}
		if !one.Healthy {
			status.State = Degraded
		}
		status.Components = append(status.Components, one)
	}
	if running == 0 {
		status.State = IsDown // of an earlier boot, or killed as a whole
		return status, nil
	}
	status.Nodes, err = c.nodeStatus(ctx)
	if err != nil || !s.Complete {
		status.State = Degraded // the API server's own line says why
	}
	for _, node := range status.Nodes {
		if !node.Ready {
			status.State = Degraded
		}
	}
	return status, nil
}

// find returns the folder that was asked for, else that of the machine's cluster, else the default.
func (o Options) find() (layout, error) {
	if o.Folder != "" {
		return o.layout(), nil
	}
	folder, err := owner()
	if err != nil || folder == "" {
		return o.layout(), err
	}
	return layout{folder: folder}, nil
}

func (c *Cluster) componentStatus(ctx context.Context, component Component) ComponentStatus {
	one := ComponentStatus{Component: component, Log: c.layout.log(component)}
	id, alive := c.alive(component)
	if !alive {
		one.Problem = "does not run"
		return one
	}
	one.PID, one.Started = id.PID, id.Started()
	if err := c.check(ctx, component); err != nil {
		one.Problem = err.Error()
		return one
	}
	one.Healthy = true
	return one
}

func (c *Cluster) nodeStatus(ctx context.Context) ([]NodeStatus, error) {
	client, err := c.client()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	pods, err := podsByNode(ctx, client)
	if err != nil {
		return nil, err
	}
	var all []NodeStatus
	for _, node := range nodes.Items {
		problem := nodeProblem(node)
		all = append(all, NodeStatus{
			Name:    node.Name,
			KWOK:    node.Annotations[kwokKey] == kwokValue,
			Ready:   problem == "",
			Problem: problem,
			Pods:    pods[node.Name],
		})
	}
	return all, nil
}

func podsByNode(ctx context.Context, client kubernetes.Interface) (map[string]int, error) {
	pods, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "status.phase!=Succeeded,status.phase!=Failed"})
	if err != nil {
		return nil, err
	}
	counts := map[string]int{}
	for _, pod := range pods.Items {
		if pod.Status.Phase != corev1.PodSucceeded && pod.Spec.NodeName != "" {
			counts[pod.Spec.NodeName]++
		}
	}
	return counts, nil
}

// ReadLog returns the last lines of a component's log. It works for a cluster that did not come up too.
func ReadLog(options Options, component Component, lines int) (string, error) {
	l, err := options.find()
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(l.log(component)); err != nil {
		return "", err
	}
	return tail(l.log(component), lines), nil
}
