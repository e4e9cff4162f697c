package status

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"idlecount.dev/idlecount/factory"
)

// Pool is one pool as `idlecount status` shows it: what the manager wrote into its anchor, and what its pods say. Times
// are instants, not ages, so that a Pool changes only when the pool does. The field names of the JSON are an interface:
// docs/cli.md describes them.
type Pool struct {
	Namespace     string     `json:"namespace"`
	Name          string     `json:"name"`
	Runner        string     `json:"runner"` // name of the [[runners]] entry; its short token where no anchor names it
	Image         string     `json:"image"`
	Shape         string     `json:"shape"`
	Policy        string     `json:"policy,omitempty"`
	Want          int        `json:"want"`
	Idle          int        `json:"idle"`
	Warming       int        `json:"warming"`
	Claimed       int        `json:"claimed"`
	Failed        int        `json:"failed"`
	Short         int        `json:"short"`                    // idle pods that are wanted and not there
	OldestIdle    *time.Time `json:"oldest_idle,omitempty"`    // since when the oldest idle pod has been idle
	OldestWarming *time.Time `json:"oldest_warming,omitempty"` // when the oldest warming pod was created
	IdleTime      string     `json:"idle_time,omitempty"`      // in force for new pods, a Go duration
	NextChange    *time.Time `json:"next_change,omitempty"`    // when another policy comes into force
	Shortfall     *Shortfall `json:"shortfall,omitempty"`      // why Short isn't 0, as far as the manager knows
	Lease         string     `json:"lease,omitempty"`          // of the managers, namespace/name
	Managed       bool       `json:"managed"`                  // whether the pool has an anchor; without one, only jobs are left of it
	Paused        bool       `json:"paused"`                   // by `idlecount pause`: nothing is made, and no surplus removed
	Drained       bool       `json:"drained"`                  // by `idlecount drain`: nothing is wanted, and the unclaimed pods go
	Unreadable    string     `json:"unreadable,omitempty"`     // why the anchor's status can't be read
	ReplacedBy    string     `json:"replaced_by,omitempty"`    // the pool that a change of the configuration has put in its place
	ConfigError   string     `json:"config_error,omitempty"`   // why its manager can't use the configuration as it is now
	Pods          []Pod      `json:"pods,omitempty"`           // by phase and name; nil unless asked for
}

// Pod is one pod of a pool.
type Pod struct {
	Name      string        `json:"name"`
	Phase     factory.Phase `json:"phase"`
	Warmth    string        `json:"warmth,omitempty"` // what its job got, "warm" or "cold"
	Job       string        `json:"job,omitempty"`    // id of the job that claimed it
	Node      string        `json:"node,omitempty"`
	Created   time.Time     `json:"created"`
	IdleSince *time.Time    `json:"idle_since,omitempty"` // of an idle pod
	ClaimedAt *time.Time    `json:"claimed_at,omitempty"`
}

// Pools puts together what anchors and pods say, ordered by namespace and name. Pods whose pool has no anchor make a row
// of their own while they count as anything: a job whose shape no pool has, or one that outlived its pool.
func Pools(anchors []corev1.ConfigMap, pods []corev1.Pod, withPods bool) []Pool {
	type key struct{ namespace, name string }
	pools := map[key]*Pool{}
	for i := range anchors {
		if a := &anchors[i]; IsAnchor(a) {
			pools[key{a.Namespace, a.Name}] = ofAnchor(a)
		}
	}
	for i := range pods {
		pod := &pods[i]
		k := key{pod.Namespace, pod.Labels[factory.LabelPool]}
		if k.name == "" {
			continue
		}
		if pools[k] == nil {
			pools[k] = ofPod(pod)
		}
		pools[k].add(pod, withPods)
	}
	rows := make([]Pool, 0, len(pools))
	for _, p := range pools {
		if !p.Managed && p.Idle+p.Warming+p.Claimed+p.Failed == 0 {
			continue
		}
		if !p.Drained && p.ReplacedBy == "" { // nothing is wanted then, whatever the manager has written last
			p.Short = max(0, p.Want-p.Idle)
		}
		slices.SortFunc(p.Pods, byPhase)
		rows = append(rows, *p)
	}
	slices.SortFunc(rows, func(a, b Pool) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return rows
}

// IsAnchor tells the anchor of a pool from other ConfigMaps that carry the label of one, such as a copy of it.
func IsAnchor(cm *corev1.ConfigMap) bool { return cm.Labels[factory.LabelPool] == cm.Name }

func ofAnchor(anchor *corev1.ConfigMap) *Pool {
	p := &Pool{
		Namespace: anchor.Namespace, Name: anchor.Name, Managed: true,
		Runner: anchor.Labels[factory.LabelRunner],
		Image:  anchor.Annotations[factory.AnnotationImage],
		Shape:  anchor.Labels[factory.LabelShape],
		// Drained is the stronger one, where somebody has set both by hand.
		Drained: anchor.Annotations[factory.AnnotationDrained] == "true",
	}
	p.Paused = !p.Drained && anchor.Annotations[factory.AnnotationPaused] == "true"
	if anchor.Data[factory.AnchorStatusKey] == "" {
		p.Unreadable = "no manager has written its status yet"
		return p
	}
	s, err := Of(anchor)
	if err != nil {
		p.Unreadable = err.Error()
		return p
	}
	p.Runner, p.Image, p.Shape = cmp.Or(s.Runner, p.Runner), cmp.Or(s.Image, p.Image), cmp.Or(s.Shape, p.Shape)
	p.Policy, p.Want, p.IdleTime = s.Policy, s.Want, s.IdleTime
	p.NextChange, p.Shortfall, p.Lease = s.NextChange, s.Shortfall, s.Lease
	p.ReplacedBy, p.ConfigError = s.ReplacedBy, s.ConfigError
	return p
}

func ofPod(pod *corev1.Pod) *Pool {
	return &Pool{
		Namespace: pod.Namespace, Name: pod.Labels[factory.LabelPool],
		Runner: pod.Labels[factory.LabelRunner],
		Image:  pod.Annotations[factory.AnnotationImage],
		Shape:  pod.Labels[factory.LabelShape],
	}
}

// add counts a pod. Expired, finished and ending pods are on their way out: they count as nothing and are only listed.
func (p *Pool) add(pod *corev1.Pod, list bool) {
	phase := factory.PhaseOf(pod)
	switch phase {
	case factory.Idle:
		p.Idle++
		if since := factory.ReadySince(pod).Time; p.OldestIdle == nil || since.Before(*p.OldestIdle) {
			p.OldestIdle = new(since.UTC())
		}
	case factory.Warming:
		p.Warming++
		if born := pod.CreationTimestamp.Time; p.OldestWarming == nil || born.Before(*p.OldestWarming) {
			p.OldestWarming = new(born.UTC())
		}
	case factory.Claimed:
		p.Claimed++
	case factory.Failed:
		p.Failed++
	case factory.Expired, factory.Finished, factory.Ending:
	}
	if list {
		p.Pods = append(p.Pods, ofPool(pod, phase))
	}
}

func ofPool(pod *corev1.Pod, phase factory.Phase) Pod {
	row := Pod{
		Name: pod.Name, Phase: phase,
		Warmth:  pod.Annotations[factory.AnnotationWarmth],
		Job:     pod.Labels[factory.LabelJob],
		Node:    pod.Spec.NodeName,
		Created: pod.CreationTimestamp.UTC(),
	}
	if phase == factory.Idle {
		row.IdleSince = new(factory.ReadySince(pod).UTC())
	}
	if at, err := time.Parse(time.RFC3339, pod.Annotations[factory.AnnotationClaimedAt]); err == nil {
		row.ClaimedAt = new(at.UTC())
	}
	return row
}

// byPhase orders pods as their lives go, then by name.
func byPhase(a, b Pod) int {
	order := []factory.Phase{
		factory.Warming, factory.Idle, factory.Claimed, factory.Failed, factory.Expired, factory.Finished, factory.Ending,
	}
	return cmp.Or(
		cmp.Compare(slices.Index(order, a.Phase), slices.Index(order, b.Phase)),
		cmp.Compare(a.Name, b.Name),
	)
}
