package cli

import (
	"context"
	"io"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	capacitystatus "idlecount.dev/idlecount/capacity/status"
	"idlecount.dev/idlecount/factory"
)

const (
	// A pool that fills sends many events at once; what they add up to is printed once.
	settleTime = 200 * time.Millisecond
	// Ages grow and leases lapse with no event that says so.
	lookAgain = 10 * time.Second
)

// follow prints pools and capacities, and again whenever they change, until ctx ends. On a terminal each picture replaces the
// one before, elsewhere it is appended.
func (o *statusOptions) follow(ctx context.Context, cluster *cluster) error {
	watched := func(selector string) informers.SharedInformerFactory {
		return informers.NewSharedInformerFactoryWithOptions(cluster, 0, informers.WithNamespace(o.namespace),
			informers.WithTweakListOptions(func(l *metav1.ListOptions) { l.LabelSelector = selector }))
	}
	ofPools, ofJobs := watched(o.selector(factory.LabelPool)), watched(capacitystatus.JobSelector)
	ofCapacities, ofPauses := watched(factory.LabelCapacity), watched(o.selector(factory.LabelCapacity))
	anchors, pods := ofPools.Core().V1().ConfigMaps(), ofPools.Core().V1().Pods()
	capacities, pauses := ofCapacities.Core().V1().ConfigMaps(), ofPauses.Core().V1().Pods()
	jobs := ofJobs.Core().V1().Pods()
	changed := make(chan struct{}, 1)
	for _, informer := range []cache.SharedIndexInformer{anchors.Informer(), pods.Informer(), capacities.Informer(), pauses.Informer(), jobs.Informer()} {
		if err := o.notify(informer, cluster, changed); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	start := func(f informers.SharedInformerFactory) {
		f.StartWithContext(ctx)
		f.WaitForCacheSyncWithContext(ctx)
	}
	for _, f := range []informers.SharedInformerFactory{ofPools, ofCapacities, ofPauses, ofJobs} {
		defer f.Shutdown()
	}
	defer cancel()
	start(ofPools)
	start(ofCapacities)
	start(ofPauses)

	screen := &screen{redraw: isTerminal(o.Out)}
	again := time.NewTicker(lookAgain)
	defer again.Stop()
	for ctx.Err() == nil {
		p := picture{
			anchors: items(anchors.Lister().List), pods: items(pods.Lister().List),
			capacities: items(capacities.Lister().List), pauses: items(pauses.Lister().List),
		}
		if o.anyAsked(p.capacities) {
			start(ofJobs)
			p.jobs = items(jobs.Lister().List)
		}
		list, err := o.compute(ctx, cluster, p)
		if err != nil && ctx.Err() == nil {
			say(o.ErrOut, "warning: "+cluster.explain(err).Error())
		}
		if err == nil {
			if err := o.show(screen, list); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
		case <-again.C:
		case <-changed:
			settle(ctx, changed)
		}
	}
	return nil
}

// notify makes each event of an informer a signal on changed, and its failures warnings, each distinct one once.
func (o *statusOptions) notify(informer cache.SharedIndexInformer, cluster *cluster, changed chan<- struct{}) error {
	signal := func() {
		select {
		case changed <- struct{}{}:
		default: // one is waiting already
		}
	}
	var mu sync.Mutex
	said := map[string]bool{}
	err := informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) {
		message := cluster.explain(err)
		mu.Lock()
		defer mu.Unlock()
		if ctx.Err() != nil || message == nil || said[message.Error()] {
			return
		}
		said[message.Error()] = true
		say(o.ErrOut, "warning: "+message.Error()+"; trying again")
	})
	if err != nil {
		return err
	}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { signal() },
		UpdateFunc: func(_, _ any) { signal() },
		DeleteFunc: func(any) { signal() },
	})
	return err
}

// settle waits until the burst of events that has begun is over, or has lasted long enough to be looked at.
func settle(ctx context.Context, changed <-chan struct{}) {
	over := time.NewTimer(settleTime)
	defer over.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-over.C:
			return
		case <-changed:
		}
	}
}

// screen is what has been shown so far.
type screen struct {
	redraw bool // a terminal: replace what is there
	shown  bool
	last   statusList
}

// show prints a picture if it is news. On a terminal it always is: ages grow.
func (o *statusOptions) show(s *screen, list statusList) error {
	if s.shown && !s.redraw && same(s.last, list) {
		return nil
	}
	if _, err := io.WriteString(o.Out, s.between(o.output)); err != nil {
		return err
	}
	s.shown, s.last = true, list
	if err := o.print(list); err != nil {
		return err
	}
	o.warn(list)
	if list.empty() {
		say(o.ErrOut, strings.Join(slices.Concat([]string{none}, o.names, []string{o.where()}), " ")+" yet; waiting for some.")
	}
	return nil
}

// between is what keeps a picture apart from the one before.
func (s *screen) between(output string) string {
	switch {
	case s.redraw:
		// To the first line, then clear all below it: what stays where it was does not flicker.
		return "\x1b[H\x1b[J"
	case s.shown && output == "yaml":
		return "---\n"
	case s.shown && (output == "" || output == "wide"):
		return "\n"
	default:
		return ""
	}
}

// same compares two pictures but for the times at which leases were renewed, which change every two seconds.
func same(a, b statusList) bool {
	if !reflect.DeepEqual(a.Pools, b.Pools) || !reflect.DeepEqual(a.Capacity, b.Capacity) || len(a.Managers) != len(b.Managers) {
		return false
	}
	for i := range a.Managers {
		if a.Managers[i].State != b.Managers[i].State || a.Managers[i].Holder != b.Managers[i].Holder {
			return false
		}
	}
	return true
}

// items copies what a lister knows into a slice of values, as a LIST gives it.
func items[T any](list func(labels.Selector) ([]*T, error)) []T {
	all, _ := list(labels.Everything()) // an informer's lister never fails
	values := make([]T, 0, len(all))
	for _, item := range all {
		values = append(values, *item)
	}
	return values
}
