package capacity

import (
	"cmp"
	"log/slog"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"idlecount.dev/idlecount/capacity/patch"
	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/cron"
	"idlecount.dev/idlecount/factory"
)

// spec is one capacity as the configuration has it.
type spec struct {
	key      key
	runner   config.Runner
	capacity factory.Capacity
	calendar cron.Calendar
	hash     string // of the capacity
	job      *corev1.Pod
	pause    *corev1.Pod
	measured string // the versions of the LimitRanges under which it is so large
	unknown  error  // why it isn't known how large it is: nothing is held then. The other capacities have nothing to do with that
}

// buffered says whether the cluster autoscaler holds the room, and not pause pods.
func (s *spec) buffered() bool { return strategy(s.runner) == config.StrategyBuffer }

// specs are the capacities of a configuration.
type specs struct {
	of  *config.Config
	all []*spec
}

// adopt goes over to a configuration. What is the same in it as before has the same objects, so nothing happens to them.
func (t *term) adopt(cfg *config.Config) {
	if t.specs.of == cfg {
		return
	}
	next := specsOf(cfg, t.log)
	for _, s := range t.specs.all {
		if !next.has(s.key) {
			t.unkept.Drop(s.key.what())
		}
	}
	t.specs, t.classes.read = next, time.Time{}
	names := map[string]string{}
	for _, s := range next.all {
		names[factory.RunnerLabel(s.runner)] = s.runner.Name
	}
	t.names.Store(&names)
}

// specsOf are the capacities that a configuration has.
func specsOf(cfg *config.Config, log *slog.Logger) specs {
	found := specs{of: cfg}
	seen := map[key]bool{}
	for _, r := range cfg.Runners {
		if !r.Managed() || !r.KeepsCapacity() {
			continue
		}
		for _, image := range r.CapacityImages() {
			s := specOf(r, image, nil)
			if seen[s.key] {
				log.Warn("two entries of the configuration make one capacity: the first one holds", "capacity", s.key.name, "second", r)
				continue
			}
			seen[s.key] = true
			found.all = append(found.all, s)
		}
	}
	return found
}

// measure makes the room of a namespace's capacities as large as jobs are there under its LimitRanges.
func (s specs) measure(namespace string, n *namespaceCache) {
	ranges, seen := n.limitRanges()
	for _, one := range s.all {
		if one.key.namespace != namespace || one.measured == seen {
			continue
		}
		*one, one.measured = *specOf(one.runner, one.capacity.Image, ranges), seen
	}
}

func specOf(r config.Runner, image string, ranges []*corev1.LimitRange) *spec {
	schedule, unread := r.CapacitySchedule(image)
	c, err := factory.CapacityOf(r, image, ranges, patch.Apply)
	s := &spec{key: key{c.Namespace, c.Name}, runner: r, capacity: c, calendar: cron.Calendar{Schedule: schedule}}
	if s.unknown = cmp.Or(unread, err); s.unknown != nil {
		return s
	}
	s.hash = c.Hash()
	s.pause = &corev1.Pod{Spec: c.Template.Spec}
	s.job = s.pause.DeepCopy() // as large, and for quotas of another class
	s.job.Spec.PriorityClassName = c.Job.Class
	s.job.Spec.ActiveDeadlineSeconds = new(int64(1)) // any: it is how quotas tell what ends
	return s
}

// namespaces are those of all capacities, sorted.
func (s specs) namespaces() []string {
	var list []string
	for _, one := range s.all {
		list = append(list, one.key.namespace)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// byRunner are the capacities in a namespace, those of one runner together, ordered by runner.
func (s specs) byRunner(namespace string) [][]*spec {
	runners := map[string][]*spec{}
	for _, one := range s.all {
		if one.key.namespace == namespace {
			label := factory.RunnerLabel(one.runner)
			runners[label] = append(runners[label], one)
		}
	}
	var lists [][]*spec
	for _, label := range slices.Sorted(maps.Keys(runners)) {
		lists = append(lists, runners[label])
	}
	return lists
}

func (s specs) has(k key) bool {
	return slices.ContainsFunc(s.all, func(one *spec) bool { return one.key == k })
}
