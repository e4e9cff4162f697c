package capacity

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"idlecount.dev/idlecount/capacity/plan"
	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/internal/leasenote"
	"idlecount.dev/idlecount/internal/leases"
	"idlecount.dev/idlecount/internal/unkept"
)

// Options are what a Keeper needs. All are wanted but those that have a default.
type Options struct {
	Client         kubernetes.Interface
	LeaseNamespace string // of the managers' lease
	LeaseName      string

	Log      *slog.Logger          // default slog.Default()
	Registry prometheus.Registerer // default: one that nobody reads
	Clock    clock.PassiveClock    // what time it is for policies and cool-downs; default: the system's
}

// Keeper holds capacity while it is led.
type Keeper struct {
	client  kubernetes.Interface
	home    *home
	log     *slog.Logger
	metrics *metrics
	clock   clock.PassiveClock
	unkept  unkept.List
}

// Current is the configuration in force, why the file as it is now isn't ("" where it is), and what is closed when either
// changes.
type Current = func() (cfg *config.Config, rejected string, changed <-chan struct{})

const (
	// lookAnyway bounds the time between two passes: timers stand still while a machine sleeps.
	lookAnyway = 5 * time.Minute
	// settle is how long changes are gathered before a pass: a burst of jobs is many.
	settle = 100 * time.Millisecond
	// firstRetry and maxRetry bound the pauses after passes that failed.
	firstRetry = 500 * time.Millisecond
	maxRetry   = time.Minute
	// requestTimeout bounds each request.
	requestTimeout = 10 * time.Second
)

// New is a Keeper that isn't led yet.
func New(o Options) (*Keeper, error) {
	if o.Client == nil || o.LeaseNamespace == "" || o.LeaseName == "" {
		return nil, errors.New("capacity: a client and the name of a lease are needed")
	}
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	m, err := newMetrics(o.Registry)
	if err != nil {
		return nil, err
	}
	return &Keeper{
		client: o.Client, log: cmp.Or(o.Log, slog.Default()), metrics: m, clock: o.Clock,
		home: &home{note: leasenote.Note{
			Client: o.Client, Namespace: o.LeaseNamespace, Name: o.LeaseName, Annotation: annotationNamespaces,
		}},
	}, nil
}

// Lead is one leader's term: it holds what the configuration in force wants until ctx ends, which it must before another
// manager leads. What is held stays as it is then.
func (k *Keeper) Lead(ctx context.Context, current Current) {
	t := newTerm(k)
	watching, end := context.WithCancel(ctx)
	defer t.running.Wait()
	defer end()
	defer t.hide()
	retry := firstRetry
	for ctx.Err() == nil {
		cfg, rejected, changed := current()
		t.rejected = rejected
		next, err := t.pass(ctx, watching, cfg)
		if err != nil && ctx.Err() == nil {
			next, retry = min(next, retry), min(2*retry, maxRetry)
		} else {
			retry = firstRetry
		}
		t.complain(err)
		select {
		case <-ctx.Done():
		case <-changed:
			t.tryAgain()
		case <-t.kick:
			select {
			case <-ctx.Done():
			case <-time.After(settle):
			}
		case <-time.After(next):
		}
	}
}

// Unkept are lines for /readyz: the capacities of the configuration that this manager can't keep at all, and why. There are
// none outside of its terms.
func (k *Keeper) Unkept() []string { return k.unkept.Reasons() }

// term is what is known in one leader's term, and thrown away with it.
type term struct {
	*Keeper
	kick      chan struct{} // asks for a pass
	running   sync.WaitGroup
	caches    map[string]*namespaceCache
	classes   classes
	specs     specs
	rejected  string                            // why the configuration file as it is now isn't in force
	names     atomic.Pointer[map[string]string] // of the runners of specs, by the label of their jobs; watches read it
	watch     *stopwatch
	memory    map[key]*memory
	ledgers   map[string]*ledger // by namespace
	complaint string
	buffers   bufferAPI
	rivals    leases.Rivals // other leases that have capacities of this manager's
	noted     bool          // whether what the lease notes has been read in this term

	mu     sync.Mutex
	heard  map[string]string // the last error of each watch
	denied map[string]bool   // watches that RBAC refuses
}

// key names a capacity.
type key struct{ namespace, name string }

// what is how /readyz names the capacity.
func (k key) what() string { return "capacity " + k.namespace + "/" + k.name }

// memory is what a term knows of a capacity besides what the watches show: what it has told, and what it waits for.
type memory struct {
	trouble  string         // as the log has it
	contest  leases.Contest // with other managers, about the anchor
	rooms    plan.Rooms     // that quotas left
	given    marks
	anchor   rewritten
	anchorAt time.Time // when this term made the anchor
	madeAt   time.Time // when this term made the Deployment
	buffer   buffered
	backoff  backoff
	said     map[string]string // annotations of an anchor that is being made anew
	written  version           // of the Deployment that is as it should be
}

// version is a state of an object's spec.
type version struct {
	uid        types.UID
	generation int64
}

func newTerm(k *Keeper) *term {
	t := &term{
		Keeper: k, kick: make(chan struct{}, 1), caches: map[string]*namespaceCache{}, memory: map[key]*memory{}, ledgers: map[string]*ledger{},
		heard: map[string]string{}, denied: map[string]bool{}, rivals: leases.Rivals{Client: k.client, Clock: k.clock},
	}
	t.watch = newStopwatch(k.clock, t.preempted)
	return t
}

// preempted tells how long a job of one of the configuration's runners waited for the node on which others had to go first.
func (t *term) preempted(namespace, label string, took time.Duration) {
	names := t.names.Load()
	if names == nil || (*names)[label] == "" {
		return // somebody else's job
	}
	t.metrics.preemptions.WithLabelValues(namespace, (*names)[label]).Observe(took.Seconds())
	t.log.Info("a job's pod has taken a pause pod's place", "namespace", namespace, "runner", (*names)[label], "took", took.Round(time.Millisecond))
}

// look asks for a pass.
func (t *term) look() {
	select {
	case t.kick <- struct{}{}:
	default:
	}
}

// hide takes away what this term has told.
func (t *term) hide() {
	t.unkept.Clear()
	for k := range t.memory {
		t.metrics.hide(k)
	}
}

// complain logs an error once, and not each time that it is met again.
func (t *term) complain(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	switch {
	case text == t.complaint:
	case text != "":
		t.log.Error("capacity can't be kept as configured; that is tried again", "error", text)
	default:
		t.log.Info("capacity is kept as configured again")
	}
	t.complaint = text
}

// watchError tells of an error of a watch once, until another one comes.
func (t *term) watchError(namespace string, w watched, err error) {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return // the watch was away for long and lists anew
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	what := w.resource + " in namespace " + namespace
	t.denied[namespace+"/"+w.resource] = apierrors.IsForbidden(err)
	if t.heard[what] == err.Error() {
		return
	}
	t.heard[what] = err.Error()
	if w.without != "" && apierrors.IsForbidden(err) {
		t.log.Warn("the manager may not see "+w.resource+", so "+w.without+"; `idlecount manifests` prints the roles", "namespace", namespace, "error", err)
		t.look()
		return
	}
	t.log.Warn("a watch has ended and is tried again", "what", what, "error", err)
}

// deniedIn says which watches of a namespace RBAC refuses, of those that passes can't do without.
func (t *term) deniedIn(namespace string, n *namespaceCache) []string {
	var names []string
	for _, w := range n.all() {
		if w.without == "" && t.isDenied(namespace, w.resource) {
			names = append(names, w.resource)
		}
	}
	return names
}

// isDenied says whether RBAC refuses a watch.
func (t *term) isDenied(namespace, resource string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.denied[namespace+"/"+resource]
}
