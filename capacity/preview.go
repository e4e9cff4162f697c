package capacity

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"k8s.io/client-go/kubernetes"

	"idlecount.dev/idlecount/capacity/status"
	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/internal/leasenote"
	"idlecount.dev/idlecount/internal/leases"
)

// Preview is what a manager with a configuration would do about a capacity now. The names in its JSON are an interface:
// docs/cli.md describes them.
type Preview struct {
	Namespace      string     `json:"namespace"`
	Name           string     `json:"name"`
	Runner         string     `json:"runner"`
	Image          string     `json:"image,omitempty"`           // the only job image that it is for
	Strategy       string     `json:"strategy"`                  // "pause" or "buffer"
	Policy         string     `json:"policy"`                    // or "removed", where the configuration doesn't have the capacity
	Want           int        `json:"want"`                      // jobs for which room is wanted
	Held           int        `json:"held"`                      // pause pods that have a node
	Pending        int        `json:"pending"`                   // pause pods that have none
	Jobs           int        `json:"jobs"`                      // that run
	Hold           int        `json:"hold"`                      // what would be asked for
	Change         int        `json:"change"`                    // how much more that is than what is asked for now
	New            bool       `json:"new"`                       // the capacity doesn't exist yet
	Ends           bool       `json:"ends"`                      // all of it would go, its ConfigMap too
	RollsOut       bool       `json:"rolls_out"`                 // pause pods that are there would be replaced by ones of another template
	Paused         bool       `json:"paused"`                    // by `idlecount pause`
	Drained        bool       `json:"drained"`                   // by `idlecount drain`
	FormerStrategy string     `json:"former_strategy,omitempty"` // by which room is held now; what that has made would go
	TakenFrom      string     `json:"taken_from,omitempty"`      // the lease of other managers from whom it would be taken over
	Trouble        string     `json:"trouble,omitempty"`         // why less would be held than is wanted
	NextChange     *time.Time `json:"next_change,omitempty"`
	LooksAgain     *time.Time `json:"looks_again,omitempty"` // when time alone changes the plan
}

// policyRemoved stands for the policy of a capacity that the configuration doesn't have.
const policyRemoved = "removed"

// PreviewOptions are what Previews needs.
type PreviewOptions struct {
	Client kubernetes.Interface
	Config *config.Config
	Lease  string // "namespace/name" of the managers; "" = that which the capacities of the configuration's runners name
	Log    *slog.Logger
	Now    time.Time
}

// Previews finds out what a manager with a configuration would do now, by the decisions that it makes, from one look at the
// cluster; it writes nothing. The rights needed are those to list pods, ConfigMaps and Deployments in the runners' namespaces.
// Quotas and PriorityClasses that can't be seen bound nothing, as with a manager.
func Previews(ctx context.Context, o PreviewOptions) ([]Preview, error) {
	specs, looked := specsOf(o.Config, o.Log), map[string]*namespaceCache{}
	for _, namespace := range specs.namespaces() {
		n, err := look(ctx, o.Client, namespace, o.Log)
		if err != nil {
			return nil, err
		}
		looked[namespace] = n
		specs.measure(namespace, n)
	}
	lease := cmp.Or(o.Lease, leaseOf(specs, looked))
	for _, namespace := range leasenote.Noted(ctx, o.Client, lease, annotationNamespaces) {
		if looked[namespace] != nil {
			continue
		}
		// A former configuration had capacity there. Who may not look has been told all that there is to know of this one's.
		if n, err := look(ctx, o.Client, namespace, o.Log); err == nil {
			looked[namespace] = n
		}
	}
	k, err := ask(ctx, o, specs)
	if err != nil {
		return nil, err
	}
	previews := []Preview{}
	for _, namespace := range slices.Sorted(maps.Keys(looked)) {
		previews = append(previews, previewsOf(namespace, looked[namespace], specs, lease, k, o.Now)...)
	}
	leaveHeld(ctx, leases.NewLook(o.Client, o.Now), previews)
	return previews, nil
}

// ask finds out what the cluster has that decisions about these capacities go by.
func ask(ctx context.Context, o PreviewOptions, s specs) (k known, err error) {
	for _, one := range s.all {
		switch {
		case one.buffered() && k.buffers.asked.IsZero():
			if k.buffers, err = findBuffers(ctx, o.Client, o.Now); err != nil {
				return known{}, err
			}
		case !one.buffered() && k.classes.read.IsZero():
			k.classes = listClasses(ctx, o.Client, o.Now)
			if k.classes.err != nil {
				o.Log.Warn("can't see the PriorityClasses, so whether jobs can take the place of pause pods isn't known", "error", k.classes.err)
			}
		}
	}
	return k, nil
}

// leaveHeld takes back what is planned for capacities whose managers hold their lease: nothing is done about those.
func leaveHeld(ctx context.Context, look *leases.Look, previews []Preview) {
	for i := range previews {
		p := &previews[i]
		if !look.Held(ctx, p.TakenFrom) {
			continue
		}
		p.Trouble = leases.Taken + ": the managers of lease " + p.TakenFrom + " have the capacity, and it is left to them while one of them leads"
		p.Hold, p.Change, p.RollsOut, p.FormerStrategy, p.TakenFrom, p.LooksAgain = p.Hold-p.Change, 0, false, "", "", nil
	}
}

// leaseOf is the lease that most anchors of the configuration's capacities name, "" where none does.
func leaseOf(s specs, looked map[string]*namespaceCache) string {
	var named []string
	for _, one := range s.all {
		if anchor := looked[one.key.namespace].anchor(one.key.namespace, one.key.name); anchor != nil {
			if before, err := status.Of(anchor); err == nil {
				named = append(named, before.Lease)
			}
		}
	}
	return leases.Most(named)
}

// previewsOf decides about each capacity of a namespace as passes do.
func previewsOf(namespace string, n *namespaceCache, configured specs, lease string, k known, now time.Time) []Preview {
	s := scene{now: now, passed: now, cache: n, ledger: &ledger{}, recall: func(key) *memory { return &memory{} }}
	var previews []Preview
	for _, p := range s.gather(configured.byRunner(namespace)) {
		previews = append(previews, p.preview(p.decide(k), lease))
	}
	for _, anchor := range n.left(configured, lease) {
		before, _ := status.Of(anchor) // it names the lease, so it can be read
		p := Preview{
			Namespace: namespace, Name: anchor.Name, Runner: before.Runner, Image: before.Image, Strategy: before.Strategy, Policy: policyRemoved, Ends: true,
		}
		p.Held, p.Pending = count(s.pauses(anchor.Name))
		if d := n.deployment(namespace, anchor.Name); d != nil {
			p.Change = -int(*d.Spec.Replicas)
		} else if before.Strategy == config.StrategyBuffer {
			p.Change = -before.Hold
		}
		previews = append(previews, p)
	}
	slices.SortStableFunc(previews, func(a, b Preview) int { return cmp.Compare(a.Name, b.Name) })
	return previews
}

// preview tells what was decided.
func (p *part) preview(d decision, lease string) Preview {
	preview := Preview{
		Namespace: p.key.namespace, Name: p.key.name, Runner: p.runner.Name, Image: p.capacity.Image,
		Strategy: strategy(p.runner), Policy: p.calendar.At(p.now).InForce(),
		Want: d.Wanted, Held: p.held, Pending: p.pending, Jobs: p.have.Jobs, Hold: d.Hold, Change: d.Hold - p.have.Held,
		New: p.anchor == nil, RollsOut: !p.buffered() && p.outdated() && d.Hold > 0 && p.have.Held > 0,
		Paused: p.want.Paused && !p.want.Drained, Drained: p.want.Drained,
	}
	if was := p.before.Strategy; was != preview.Strategy {
		preview.FormerStrategy = was
	}
	if p.before.Lease != "" && p.before.Lease != lease {
		preview.TakenFrom = p.before.Lease
	}
	if t := d.trouble; t != nil {
		preview.Trouble = fmt.Sprintf("%s: %s", t.Reason, t.Message)
	}
	if next := p.calendar.NextChange(p.now); !next.IsZero() {
		preview.NextChange = new(next.UTC())
	}
	if !d.LookAt.IsZero() {
		preview.LooksAgain = new(d.LookAt.UTC())
	}
	return preview
}
