package capacity

import (
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"idlecount.dev/idlecount/capacity/plan"
	"idlecount.dev/idlecount/capacity/status"
	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/factory"
	poolplan "idlecount.dev/idlecount/pool/plan"
)

// part is one capacity in a pass: what is wanted of it, and what there is.
type part struct {
	*spec
	now           time.Time
	anchor        *corev1.ConfigMap  // nil where it has to be made
	deployment    *appsv1.Deployment // nil where there is none
	before        status.Status
	want          plan.Want
	have          plan.Have
	held, pending int         // pause pods that have a node, and that have none; of a buffer what its autoscaler provides for, and the rest
	label         string      // of the runner's jobs
	one           *corev1.Pod // the newest pause pod that is there, nil where none is
	again         time.Time   // when to look at the quotas, or at the buffer, again; zero = when they change
	memory        *memory
}

// outdated says whether the pause pods that are there differ from those that would be made today.
func (p *part) outdated() bool {
	return p.unknown == nil && p.deployment != nil && p.deployment.Annotations[factory.AnnotationTemplate] != p.hash
}

// scene is a namespace at one time: what passes act on and previews tell of.
type scene struct {
	now    time.Time // by which policies go
	passed time.Time // by which it is seen how long something holds; the two differ in tests only
	cache  *namespaceCache
	ledger *ledger // of the namespace
	recall func(key) *memory
}

// gather sees what there is of a namespace's capacities. Those of one runner come together: they share its limit, as all
// share the quotas.
func (s scene) gather(runners [][]*spec) []*part {
	var all []*part
	for _, list := range runners {
		label := factory.RunnerLabel(list[0].runner)
		jobs := live(s.cache.jobs, label)
		counts := jobsOf(jobs, list)
		parts := make([]*part, 0, len(list))
		for _, one := range list {
			p := s.see(one)
			p.label, p.have.Jobs = label, counts[one]
			parts = append(parts, p)
		}
		shareLimit(list[0].runner, len(jobs), len(live(s.cache.idle, label)), parts)
		all = append(all, parts...)
	}
	s.shareQuotas(all)
	return all
}

// see sees what there is of one capacity, but for its jobs.
func (s scene) see(one *spec) *part {
	k, d := one.key, one.calendar.At(s.now)
	p := &part{
		spec: one, now: s.now, memory: s.recall(k),
		deployment: s.cache.deployment(k.namespace, k.name),
		want:       plan.Want{Count: d.IdleCount, ScaleFactor: d.ScaleFactor, ScaleFactorLimit: d.ScaleFactorLimit, IdleTime: d.IdleTime},
		have:       plan.Have{Room: plan.NoBound, QuotaFor: plan.NoBound},
	}
	p.anchor = p.memory.anchor.or(s.cache.anchor(k.namespace, k.name))
	if p.anchor != nil {
		p.before, _ = status.Of(p.anchor) // what can't be read is written anew
		p.want.Drained = p.anchor.Annotations[factory.AnnotationDrained] == "true"
		p.want.Paused = p.anchor.Annotations[factory.AnnotationPaused] == "true"
	}
	pauses := s.pauses(k.name)
	p.held, p.pending = count(pauses)
	p.have.Given = p.memory.given.see(s.now, pauses)
	if len(pauses) > 0 {
		p.one = slices.MaxFunc(pauses, func(a, b *corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	}
	if d := p.deployment; d != nil {
		p.have.Held = int(*d.Spec.Replicas)
		p.have.Surplus, _ = time.Parse(time.RFC3339, d.Annotations[factory.AnnotationSurplusSince]) // zero where there is none
	}
	// What a buffer holds is known by its anchor.
	if p.buffered() && p.before.Strategy == config.StrategyBuffer {
		p.have.Held, p.held, p.pending = p.before.Hold, p.before.Held, max(0, p.before.Hold-p.before.Held)
		if at := p.before.Surplus; at != nil {
			p.have.Surplus = *at
		}
	}
	return p
}

// rewritten is an anchor as this manager has written it last, over one of another version.
type rewritten struct {
	over string
	made *corev1.ConfigMap
}

// or is the anchor that is shown, or what was made of just that one and isn't shown yet: what a buffer holds stands there only.
func (r rewritten) or(shown *corev1.ConfigMap) *corev1.ConfigMap {
	if shown != nil && r.made != nil && shown.ResourceVersion == r.over && shown.UID == r.made.UID {
		return r.made
	}
	return shown
}

// pauses are the pause pods of a capacity: those that its Deployment has made, whatever labels others have.
func (s scene) pauses(name string) []*corev1.Pod {
	return slices.DeleteFunc(live(s.cache.pauses, name), func(pod *corev1.Pod) bool {
		by := metav1.GetControllerOf(pod)
		return by == nil || by.Kind != "ReplicaSet" || !strings.HasPrefix(by.Name, name+"-")
	})
}

// count counts pause pods that have a node, and those that have none.
func count(pauses []*corev1.Pod) (held, pending int) {
	for _, pod := range pauses {
		if pod.Spec.NodeName != "" {
			held++
		} else {
			pending++
		}
	}
	return held, pending
}

// marks are the pause pods whose room a driver has asked for. Each counts once, however long it takes to go: the ReplicaSet may
// let another one go first.
type marks struct {
	seen  map[types.UID]bool
	given plan.Given
}

func (m *marks) see(now time.Time, pauses []*corev1.Pod) plan.Given {
	marked, fresh := map[types.UID]bool{}, 0
	for _, pod := range pauses {
		if pod.Annotations[factory.AnnotationGivenBack] == "" {
			continue
		}
		marked[pod.UID] = true
		if !m.seen[pod.UID] {
			fresh++
		}
	}
	m.seen = marked
	if fresh > 0 {
		m.given = m.given.After(now, fresh, len(pauses))
	}
	return m.given
}

// jobsOf counts the jobs for which each of a runner's capacities is: those with its image, or those whose image has none of
// its own.
func jobsOf(jobs []*corev1.Pod, list []*spec) map[*spec]int {
	of := map[string]*spec{}
	for _, s := range list {
		of[config.CanonicalImage(s.capacity.Image)] = s
	}
	counts := map[*spec]int{}
	for _, pod := range jobs {
		if its := of[status.ImageOf(pod, of)]; its != nil {
			counts[its]++
		}
	}
	return counts
}

// shareLimit says what the runner's limit leaves each of its capacities: idle pods and jobs come first. What GitLab's table
// has in max_pause_pods bounds them too.
func shareLimit(r config.Runner, jobs, idle int, parts []*part) {
	room := plan.NoBound
	if r.Limit > 0 {
		room = max(0, r.Limit-jobs-idle)
	}
	if most := r.Kubernetes.Autoscaler.MaxPausePods; most > 0 {
		room = min(room, most)
	}
	asked := 0
	var demands []poolplan.Demand
	for _, p := range parts {
		want := plan.Plan(p.now, p.want, p.have).Wanted
		demands = append(demands, poolplan.Demand{Name: p.key.name, Want: want})
		asked += max(want, p.have.Held)
	}
	if asked <= room {
		return
	}
	shares := poolplan.Share(room, demands)
	for _, p := range parts {
		p.have.Room = shares[p.key.name]
	}
}
