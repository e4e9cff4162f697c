package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/factory"
)

// JobSelector selects the pods of jobs, ours and those of GitLab's executor. GitLab labels its own pause pods like jobs'
// pods; neither they nor ours are jobs.
const JobSelector = factory.LabelGitLabManagerID + ",!" + factory.LabelCapacity + ",!runner.gitlab.com/pause-pod"

// Row is one capacity as `idlecount status` shows it: what the manager wrote into its anchor, and what the pods say. The
// field names of the JSON are an interface: docs/cli.md lists them.
type Row struct {
	Namespace  string     `json:"namespace"`
	Name       string     `json:"name"`
	Runner     string     `json:"runner"`
	Image      string     `json:"image,omitempty"`
	Strategy   string     `json:"strategy"`
	Policy     string     `json:"policy,omitempty"`
	Want       int        `json:"want"`
	Hold       int        `json:"hold"`            // asked for
	Held       int        `json:"held"`            // pause pods that have a node, or what a buffer's autoscaler provides for
	Pending    int        `json:"pending"`         // the rest of what is there
	Waits      string     `json:"waits,omitempty"` // what the scheduler says of one that has none
	Stuck      int        `json:"stuck,omitempty"` // of held: pause pods that can't run, though they hold their node all the same
	StuckSays  string     `json:"stuck_says,omitempty"`
	Jobs       int        `json:"jobs"` // that run, by GitLab's labels, of those that the capacity is for
	NextChange *time.Time `json:"next_change,omitempty"`
	Trouble    *Trouble   `json:"trouble,omitempty"`
	// Of the jobs' pods that are there: how long they waited for their node, in whole seconds, as the API server has it.
	ScheduledMedian *float64 `json:"scheduled_median_seconds,omitempty"`
	ScheduledMost   *float64 `json:"scheduled_most_seconds,omitempty"`
	Lease           string   `json:"lease,omitempty"`
	ConfigError     string   `json:"config_error,omitempty"` // why its manager can't use the configuration as it is now
	Paused          bool     `json:"paused"`
	Drained         bool     `json:"drained"`
}

// Rows puts together what anchors, pause pods and the pods of jobs say, ordered by namespace and name. The anchors are those of
// all capacities of each runner: a job for which one of them is isn't another one's.
func Rows(anchors []corev1.ConfigMap, pauses, jobs []corev1.Pod) []Row {
	var rows []Row
	images := imagesByRunner(anchors)
	for i := range anchors {
		a := &anchors[i]
		if !IsAnchor(a) {
			continue
		}
		s, err := Of(a)
		r := Row{
			Namespace: a.Namespace, Name: a.Name, Runner: cmp.Or(s.Runner, a.Labels[factory.LabelRunner]), Image: s.Image,
			Strategy: s.Strategy, Policy: s.Policy, Want: s.Want, Hold: s.Hold, NextChange: s.NextChange, Trouble: s.Trouble, Lease: s.Lease, ConfigError: s.ConfigError,
			Drained: a.Annotations[factory.AnnotationDrained] == "true",
		}
		r.Paused = !r.Drained && a.Annotations[factory.AnnotationPaused] == "true"
		if err != nil {
			r.Trouble = &Trouble{Reason: API, Message: err.Error()}
		}
		for j := range pauses {
			if p := &pauses[j]; p.Namespace == a.Namespace && p.Labels[factory.LabelCapacity] == a.Name {
				r.add(p)
			}
		}
		if r.Strategy == config.StrategyBuffer {
			r.Held, r.Pending = s.Held, max(0, s.Hold-s.Held)
		}
		r.scheduled(jobs, a.Labels[factory.LabelRunner], images[runnerOf(a)])
		rows = append(rows, r)
	}
	slices.SortFunc(rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return rows
}

// runner is one in a namespace, by its label.
type runner struct{ namespace, label string }

func runnerOf(anchor *corev1.ConfigMap) runner {
	return runner{anchor.Namespace, anchor.Labels[factory.LabelRunner]}
}

// imagesByRunner are the images, in their canonical form, for which each runner has room of its own.
func imagesByRunner(anchors []corev1.ConfigMap) map[runner]map[string]bool {
	images := map[runner]map[string]bool{}
	for i := range anchors {
		a := &anchors[i]
		s, err := Of(a)
		if err != nil || !IsAnchor(a) {
			continue
		}
		if images[runnerOf(a)] == nil {
			images[runnerOf(a)] = map[string]bool{}
		}
		images[runnerOf(a)][config.CanonicalImage(s.Image)] = true
	}
	return images
}

// ImageOf says for which image the capacity is that a job of the runner counts for, in its canonical form: the job's own, where
// there is room for that apart, else "", which stands for all others. own has those that have some.
func ImageOf[V any](job *corev1.Pod, own map[string]V) string {
	i := slices.IndexFunc(job.Spec.Containers, func(c corev1.Container) bool { return c.Name == "build" })
	if i < 0 {
		return ""
	}
	image := config.CanonicalImage(job.Spec.Containers[i].Image)
	if _, apart := own[image]; !apart {
		return ""
	}
	return image
}

func ended(p *corev1.Pod) bool {
	return p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// add counts a pause pod.
func (r *Row) add(p *corev1.Pod) {
	switch {
	case ended(p):
	case p.Spec.NodeName != "":
		r.Held++
		if says := stuck(p); says != "" {
			r.Stuck++
			r.StuckSays = first(r.StuckSays, says)
		}
	default:
		r.Pending++
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				r.Waits = first(r.Waits, c.Message)
			}
		}
	}
}

// first is the first text in the alphabet that isn't empty: one that goes by the order of the pods would change with every look.
func first(a, b string) string {
	if a == "" || b != "" && b < a {
		return b
	}
	return a
}

// stuck is what the kubelet says of a pause pod that has a node and can't run there, "" where it may.
func stuck(p *corev1.Pod) string {
	for _, c := range p.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil && w.Reason != "" && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
			return strings.TrimSuffix(w.Reason+": "+w.Message, ": ")
		}
	}
	return ""
}

// scheduled looks at the runner's jobs that the capacity is for.
func (r *Row) scheduled(jobs []corev1.Pod, runner string, images map[string]bool) {
	var took []float64
	for i := range jobs {
		p := &jobs[i]
		if p.Namespace != r.Namespace || p.Labels[factory.LabelGitLabManagerID] != runner || p.Labels[factory.LabelCapacity] != "" || ended(p) || ImageOf(p, images) != config.CanonicalImage(r.Image) {
			continue
		}
		r.Jobs++
		for _, c := range p.Status.Conditions {
			// A pod that was made warm has waited for its node before there was a job.
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue && p.Annotations[factory.AnnotationWarmth] != string(factory.Warm) {
				took = append(took, c.LastTransitionTime.Sub(p.CreationTimestamp.Time).Seconds())
			}
		}
	}
	if len(took) > 0 {
		slices.Sort(took)
		r.ScheduledMedian, r.ScheduledMost = new(took[len(took)/2]), new(took[len(took)-1])
	}
}

// Reason says in a line why less is held than is wanted, or what is to be known of it; "" where all is as wanted.
func (r Row) Reason(now time.Time) string {
	var parts []string
	switch left := r.Held + r.Pending; {
	case r.Drained && left > 0:
		parts = append(parts, fmt.Sprintf("drained: pause pods go (%d left); `idlecount resume` holds room again", left))
	case r.Drained:
		parts = append(parts, "drained; `idlecount resume` holds room again")
	case r.Paused:
		parts = append(parts, "paused; `idlecount resume` ends that")
	}
	if t := r.Trouble; t != nil {
		parts = append(parts, t.text(now))
	}
	switch {
	case r.Pending == 0 || r.Drained:
	case r.Strategy == config.StrategyBuffer:
		if r.Trouble == nil {
			parts = append(parts, fmt.Sprintf("the autoscaler doesn't provide for %d yet", r.Pending))
		}
	default:
		waits := cmp.Or(r.Waits, "the scheduler has said nothing yet")
		parts = append(parts, fmt.Sprintf("%d %s for a node: %s", r.Pending, verb(r.Pending, "wait"), waits))
	}
	if r.Stuck > 0 {
		parts = append(parts, fmt.Sprintf("%d %s a node and can't run: %s", r.Stuck, verb(r.Stuck, "hold"), r.StuckSays))
	}
	if r.Hold > r.Want && !r.Paused {
		whose := "their"
		if r.Hold-r.Want == 1 {
			whose = "its"
		}
		parts = append(parts, fmt.Sprintf("%d more than wanted, until %s idle time is over", r.Hold-r.Want, whose))
	}
	return strings.Join(strings.Fields(strings.Join(parts, "; ")), " ")
}

// verb is what so many do.
func verb(n int, stem string) string {
	if n == 1 {
		return stem + "s"
	}
	return stem
}

// text says what a trouble is and since when, where that is known.
func (t Trouble) text(now time.Time) string {
	lasts := ""
	if !t.Since.IsZero() {
		lasts = " for " + max(0, now.Sub(t.Since)).Round(time.Second).String()
	}
	return fmt.Sprintf("%s%s: %s", t.Reason, lasts, t.Message)
}
