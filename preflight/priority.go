package preflight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/factory"
)

// rivals are runners whose jobs of one PriorityClass are to take the place of pause pods of another.
type rivals struct {
	pause, job string   // names of the classes; job is "" where the configuration names none
	runners    []string // their names
}

// rivalsOf are those of a configuration, in its order.
func rivalsOf(cfg *config.Config) []rivals {
	var all []rivals
	for _, r := range cfg.Runners {
		if !r.Managed() || !r.KeepsCapacity() || r.Kubernetes.IdleStrategy == config.StrategyBuffer {
			continue
		}
		pause, job := factory.PauseClassName(r), r.Kubernetes.PriorityClassName
		i := slices.IndexFunc(all, func(one rivals) bool { return one.pause == pause && one.job == job })
		if i < 0 {
			i, all = len(all), append(all, rivals{pause: pause, job: job})
		}
		all[i].runners = append(all[i].runners, fmt.Sprintf("%q", r.Name))
	}
	return all
}

// priorities finds out whether the jobs of runners that keep pause pods can take their place.
func priorities(ctx context.Context, o Options) []Result {
	all := rivalsOf(o.Config)
	if len(all) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	list, err := o.Client.SchedulingV1().PriorityClasses().List(ctx, metav1.ListOptions{})
	if err != nil {
		return []Result{unknown(Result{Check: Priority}, "can't see the PriorityClasses", err, "ask as somebody who may list priorityclasses")}
	}
	results := make([]Result, 0, len(all))
	for _, one := range all {
		r := one.judge(list.Items)
		r.Check, r.Object = Priority, one.pause
		r.Message = "for the jobs of " + strings.Join(one.runners, ", ") + ": " + r.Message
		results = append(results, r)
	}
	return results
}

// judge looks the classes up and compares them.
func (one rivals) judge(classes []schedulingv1.PriorityClass) (r Result) {
	var pause, job *schedulingv1.PriorityClass
	for i := range classes {
		c := &classes[i]
		if c.Name == one.pause {
			pause = c
		}
		if c.Name == one.job || one.job == "" && c.GlobalDefault {
			job = c
		}
	}
	switch {
	case pause == nil && one.pause == factory.PausePriorityClass:
		r.Status, r.Message = Warn, "the PriorityClass of pause pods isn't there; the manager makes it, if it may"
		r.Fix = "apply what `idlecount manifests` prints"
		return r
	case pause == nil:
		r.Status, r.Message = Fail, fmt.Sprintf("the PriorityClass %s, which pause_pod_priority_class_name names, isn't there: no pause pod can be made", one.pause)
		r.Fix = "make it, or take the key away"
		return r
	case job == nil && one.job != "":
		r.Status, r.Message = Fail, fmt.Sprintf("the PriorityClass %s, which priority_class_name names for the jobs, isn't there: no pod of a job can be made", one.job)
		r.Fix = "make it, or take the key away"
		return r
	}
	if unfit, ok := errors.AsType[*factory.PriorityError](factory.CheckPausePriority(*pause, job)); ok {
		r.Status, r.Message, r.Fix = Fail, unfit.Problem, unfit.Remedy+"; nothing is held until then"
		return r
	}
	r.Status, r.Message = OK, "they can take the place of pause pods"
	return r
}
