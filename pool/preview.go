package pool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/internal/leasenote"
	"idlecount.dev/idlecount/internal/leases"
	"idlecount.dev/idlecount/pool/plan"
	"idlecount.dev/idlecount/pool/status"
)

// Preview is what a manager with a configuration would do about a pool now. The names in its JSON are an interface:
// docs/cli.md describes them.
type Preview struct {
	Namespace  string            `json:"namespace"`
	Name       string            `json:"name"`
	Runner     string            `json:"runner"`
	Image      string            `json:"image"`
	Policy     string            `json:"policy"` // or "removed" or "replaced", where the configuration doesn't have the pool
	Want       int               `json:"want"`
	Idle       int               `json:"idle"`
	Warming    int               `json:"warming"`
	Claimed    int               `json:"claimed"`
	Failed     int               `json:"failed"`
	Create     int               `json:"create"`
	Delete     []PreviewDeletion `json:"delete"`
	New        bool              `json:"new"`     // the pool doesn't exist yet
	Ends       bool              `json:"ends"`    // the pool's ConfigMap would go too: nothing of it would be left
	Paused     bool              `json:"paused"`  // by `idlecount pause`
	Drained    bool              `json:"drained"` // by `idlecount drain`
	ReplacedBy string            `json:"replaced_by,omitempty"`
	TakenFrom  string            `json:"taken_from,omitempty"` // the lease of other managers from whom it would be taken over
	Shortfall  string            `json:"shortfall,omitempty"`  // why fewer would be idle than wanted
	NextChange *time.Time        `json:"next_change,omitempty"`
	LooksAgain *time.Time        `json:"looks_again,omitempty"` // when time alone changes the plan
}

// PreviewDeletion is a pod that would be deleted.
type PreviewDeletion struct {
	Pod    string      `json:"pod"`
	Reason plan.Reason `json:"reason"`
}

// PreviewOptions are what Previews needs.
type PreviewOptions struct {
	Client kubernetes.Interface
	Config *config.Config
	Lease  string // "namespace/name" of the managers; "" = that which the pools of the configuration's runners name
	Log    *slog.Logger
	Now    time.Time
}

// Previews finds out what a manager with a configuration would do now, by the decisions that it makes, from one look at the
// cluster; it writes nothing. What a running manager remembers of failures isn't known here: where it pauses, more is
// planned than it would do at once. The rights needed are those to list pods and ConfigMaps in the runners' namespaces. It
// also returns the lease of the manager that it has gone by.
func Previews(ctx context.Context, o PreviewOptions) (previews []Preview, lease string, err error) {
	setup, err := newSetup(o.Config, o.Log)
	if err != nil {
		return nil, "", err
	}
	looked := map[string]*namespaceCache{}
	for _, namespace := range setup.namespaces {
		if looked[namespace], err = look(ctx, o.Client, namespace); err != nil {
			return nil, "", err
		}
	}
	lease = cmp.Or(o.Lease, leaseOf(setup, looked))
	for _, namespace := range leasenote.Noted(ctx, o.Client, lease, annotationNamespaces) {
		if looked[namespace] != nil {
			continue
		}
		// A former configuration had pools there. Who may not look has been told all that there is to know of this one's.
		if n, err := look(ctx, o.Client, namespace); err == nil {
			looked[namespace] = n
		}
	}
	previews = []Preview{}
	for _, namespace := range slices.Sorted(maps.Keys(looked)) {
		previews = append(previews, previewsOf(namespace, looked[namespace], setup, lease, o.Now)...)
	}
	leaveHeld(ctx, leases.NewLook(o.Client, o.Now), previews)
	return previews, lease, nil
}

// leaveHeld takes back what is planned for pools whose managers hold their lease: nothing is done about those.
func leaveHeld(ctx context.Context, look *leases.Look, previews []Preview) {
	for i := range previews {
		p := &previews[i]
		if !look.Held(ctx, p.TakenFrom) {
			continue
		}
		p.Shortfall = leases.Taken + ": the managers of lease " + p.TakenFrom + " have the pool, and it is left to them while one of them leads"
		p.Create, p.Delete, p.TakenFrom = 0, []PreviewDeletion{}, ""
	}
}

// look fills the cache of a namespace once; its watches never begin.
func look(ctx context.Context, client kubernetes.Interface, namespace string) (*namespaceCache, error) {
	n := newNamespaceCache(client, namespace)
	ours := metav1.ListOptions{LabelSelector: factory.LabelPool}
	anchors, err := client.CoreV1().ConfigMaps(namespace).List(ctx, ours)
	if err != nil {
		return nil, fmt.Errorf("list the pools' ConfigMaps in namespace %s: %w", namespace, err)
	}
	pods, err := client.CoreV1().Pods(namespace).List(ctx, ours)
	if err != nil {
		return nil, fmt.Errorf("list the pools' pods in namespace %s: %w", namespace, err)
	}
	var errs []error
	for i := range anchors.Items {
		errs = append(errs, n.anchors.GetIndexer().Add(&anchors.Items[i]))
	}
	for i := range pods.Items {
		errs = append(errs, n.pods.GetIndexer().Add(&pods.Items[i]))
	}
	return n, errors.Join(errs...)
}

// leaseOf is the lease that most anchors of the configuration's runners name, "" where none does.
func leaseOf(s *setup, looked map[string]*namespaceCache) string {
	var named []string
	for _, n := range looked {
		for runner := range s.runners {
			for _, anchor := range n.anchorsOf(runner) {
				if before, err := status.Of(anchor); err == nil {
					named = append(named, before.Lease)
				}
			}
		}
	}
	return leases.Most(named)
}

// previewsOf decides about each pool of a namespace as passes do.
func previewsOf(namespace string, n *namespaceCache, setup *setup, lease string, now time.Time) []Preview {
	nothing := &memory{}
	s := scene{
		now: now, lease: lease, setup: setup, cache: n, burst: math.MaxInt32,
		expect: newExpectations(clock.RealClock{}), // nothing was written
		recall: func(key) *memory { return nothing },
	}
	known := map[key]bool{}
	for k := range setup.pools {
		known[k] = k.namespace == namespace
	}
	for _, name := range n.pods.GetIndexer().ListIndexFuncValues(byPool) {
		known[key{namespace, name}] = true
	}
	for _, name := range n.anchors.GetStore().ListKeys() {
		known[key{namespace, strings.TrimPrefix(name, namespace+"/")}] = true
	}
	var previews []Preview
	for _, k := range slices.SortedFunc(maps.Keys(known), func(a, b key) int { return cmp.Compare(a.name, b.name) }) {
		if !known[k] {
			continue
		}
		if p := setup.pools[k]; p != nil {
			previews = append(previews, s.previewConfigured(p))
		} else if preview, ours := s.previewRemoved(k); ours {
			previews = append(previews, preview)
		}
	}
	return previews
}

func (s scene) previewConfigured(p *pool) Preview {
	d := s.configured(p)
	preview := previewOf(p.key, d.result)
	preview.Runner, preview.Image, preview.Policy = p.runner.Name, p.image, p.calendar.At(s.now).InForce()
	preview.Paused, preview.Drained = d.want.Paused && !d.want.Drained, d.want.Drained
	if next := p.calendar.NextChange(s.now); !next.IsZero() {
		preview.NextChange = new(next.UTC())
	}
	anchor := s.anchor(p.key)
	if preview.New = anchor == nil; preview.New {
		told := inherited(s.formers(p))
		preview.Drained = told[factory.AnnotationDrained] == "true"
		preview.Paused = !preview.Drained && told[factory.AnnotationPaused] == "true"
		if preview.Drained || preview.Paused {
			preview.Create = 0
		}
	} else if before, err := status.Of(anchor); err == nil && before.Lease != "" && before.Lease != s.lease {
		preview.TakenFrom = before.Lease
	}
	return preview
}

// previewRemoved is about a pool that the configuration doesn't have; false where it isn't ours to remove.
func (s scene) previewRemoved(k key) (Preview, bool) {
	anchor := s.cache.anchor(k)
	if anchor == nil {
		pods := s.cache.podsBy(byPool, k.name)
		if !slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return s.setup.runners[pod.Labels[factory.LabelRunner]] }) {
			return Preview{}, false
		}
		preview := previewOf(k, s.removed(k, nil).result)
		preview.Runner, preview.Image = pods[0].Labels[factory.LabelRunner], pods[0].Annotations[factory.AnnotationImage]
		return preview, preview.Create > 0 || len(preview.Delete) > 0
	}
	before, err := status.Of(anchor)
	if err != nil || before.Lease == "" || before.Lease != s.lease {
		return Preview{}, false
	}
	d := s.removed(k, anchor)
	preview := previewOf(k, d.result)
	preview.Runner, preview.Image, preview.Policy = before.Runner, before.Image, policyRemoved
	if next := s.setup.successor(anchor); next != nil {
		preview.Policy, preview.ReplacedBy = policyReplaced, next.key.name
	}
	preview.Ends = d.result.Counts == (plan.Counts{})
	return preview, true
}

func previewOf(k key, r plan.Result) Preview {
	preview := Preview{
		Namespace: k.namespace, Name: k.name, Want: r.Wanted,
		Idle: r.Counts.Idle, Warming: r.Counts.Warming, Claimed: r.Counts.Claimed, Failed: r.Counts.Failed,
		Create: r.Create, Delete: []PreviewDeletion{},
	}
	for _, d := range r.Delete {
		preview.Delete = append(preview.Delete, PreviewDeletion{d.Name, d.Reason})
	}
	if r.Shortfall != nil {
		preview.Shortfall = r.Shortfall.Reason + ": " + r.Shortfall.Message
	}
	if !r.RequeueAt.IsZero() {
		preview.LooksAgain = new(r.RequeueAt.UTC())
	}
	return preview
}
