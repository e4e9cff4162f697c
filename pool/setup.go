package pool

import (
	"log/slog"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/factory"
)

// Reload is what has become of a configuration file while a manager runs: a new configuration, or why the file can't be
// used as it is now.
type Reload struct {
	Config *config.Config // nil where Err says why
	Err    error
}

// setup is a configuration as passes work with it. It is never changed, but for what its pools remember for the worker:
// another configuration is another setup.
type setup struct {
	config     *config.Config
	pools      map[key]*pool
	ofRunner   map[runnerIn][]key // the pools of each runner, by name
	byImage    map[imageOf]*pool
	namespaces []string        // in which its runners have pods, sorted
	runners    map[string]bool // labels of the runners that this manager is responsible for
}

// runnerIn is a runner, by its label, in a namespace; imageOf is a job image of one.
type (
	runnerIn struct{ namespace, label string }
	imageOf  struct {
		runnerIn
		image string
	}
)

func newSetup(c *config.Config, log *slog.Logger) (*setup, error) {
	pools, err := poolsOf(c, log)
	if err != nil {
		return nil, err
	}
	s := &setup{
		config: c, pools: pools, ofRunner: map[runnerIn][]key{}, byImage: map[imageOf]*pool{}, namespaces: namespacesOf(c), runners: runnersOf(c),
	}
	for k, p := range pools {
		s.ofRunner[p.owner()] = append(s.ofRunner[p.owner()], k)
		s.byImage[imageOf{p.owner(), p.shape.Image}] = p
	}
	for _, keys := range s.ofRunner {
		slices.SortFunc(keys, func(a, b key) int { return strings.Compare(a.name, b.name) })
	}
	return s, nil
}

// successor is the pool that has taken the place of an anchor's: that of the same runner and image. Nil where there is
// none, and where the configuration has the anchor's pool itself.
func (s *setup) successor(anchor *corev1.ConfigMap) *pool {
	if s.pools[key{anchor.Namespace, anchor.Name}] != nil {
		return nil
	}
	return s.byImage[imageOf{runnerIn{anchor.Namespace, anchor.Labels[factory.LabelRunner]}, anchor.Annotations[factory.AnnotationImage]}]
}

// configs holds the configuration in force, over all terms of a process.
type configs struct {
	log     *slog.Logger
	metrics *metrics
	clock   clock.PassiveClock

	mu       sync.Mutex
	setup    *setup
	rejected string        // why the file as it is now isn't in force; "" where it is
	changed  chan struct{} // closed when another configuration comes into force, or is rejected
	wake     func()        // tells the leader's worker of a change; nil while this manager doesn't lead
}

func newConfigs(o Options, m *metrics, first *setup) *configs {
	c := &configs{log: o.Log, metrics: m, clock: o.Clock, setup: first, changed: make(chan struct{})}
	m.reloaded(c.clock.Now())
	return c
}

// now is the configuration in force.
func (c *configs) now() *setup {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.setup
}

// current is what Beside.Lead is told.
func (c *configs) current() (*config.Config, string, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.setup.config, c.rejected, c.changed
}

// trouble is why the file as it is now isn't in force, "" where it is.
func (c *configs) trouble() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rejected
}

// follow has changed called after each change, until another one follows; nil for nobody.
func (c *configs) follow(changed func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wake = changed
}

// take puts a new configuration into force, or keeps the old one where the new one can't be used; that is said once.
func (c *configs) take(r Reload, prepare func(*setup)) {
	var next *setup
	err := r.Err
	if err == nil {
		next, err = newSetup(r.Config, c.log)
	}
	if err != nil {
		c.reject(err)
		return
	}
	prepare(next)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setup, c.rejected = next, ""
	c.tell()
	c.metrics.reloaded(c.clock.Now())
	c.log.Info("another configuration is in force", "pools", len(next.pools))
}

// tell tells whoever follows of a change. The caller holds the lock.
func (c *configs) tell() {
	close(c.changed)
	c.changed = make(chan struct{})
	if c.wake != nil {
		c.wake()
	}
}

func (c *configs) reject(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.metrics.notReloaded()
	text := bounded(err.Error())
	if text == c.rejected {
		return
	}
	c.rejected = text
	c.log.Error("the configuration file has changed and can't be used; the configuration before stays in force until it is mended",
		"error", err)
	c.tell()
}

// maxConfigError bounds what a file's problems may take of an anchor, in bytes.
const maxConfigError = 2000

func bounded(text string) string {
	if len(text) <= maxConfigError {
		return text
	}
	cut := maxConfigError
	for cut > 0 && text[cut]&0xC0 == 0x80 { // not within a character
		cut--
	}
	return text[:cut] + " …"
}
