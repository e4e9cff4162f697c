package preflight

import (
	"context"
	"fmt"

	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/factory"
)

// priorities finds out whether the jobs of runners that keep pause pods can take their place.
func priorities(ctx context.Context, o Options) []Result {
	var keeping []config.Runner
	for _, r := range o.Config.Runners {
		if r.Managed() && r.KeepsCapacity() && r.Kubernetes.IdleStrategy != config.StrategyBuffer {
			keeping = append(keeping, r)
		}
	}
	if len(keeping) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	list, err := o.Client.SchedulingV1().PriorityClasses().List(ctx, metav1.ListOptions{})
	if err != nil {
		return []Result{unknown(Result{Check: Priority}, "can't see the PriorityClasses", err, "ask as somebody who may list priorityclasses")}
	}
	results := make([]Result, 0, len(keeping))
	for _, r := range keeping {
		results = append(results, priority(r, list.Items))
	}
	return results
}

// priority judges the class of a runner's pause pods.
func priority(r config.Runner, classes []schedulingv1.PriorityClass) Result {
	pauseName, jobName := factory.PauseClassName(r), r.Kubernetes.PriorityClassName
	result := Result{Check: Priority, Namespace: r.Kubernetes.Namespace, Object: pauseName}
	var pause, job *schedulingv1.PriorityClass
	for i := range classes {
		c := &classes[i]
		if c.Name == pauseName {
			pause = c
		}
		if c.Name == jobName || jobName == "" && c.GlobalDefault {
			job = c
		}
	}
	switch {
	case pause == nil && pauseName == factory.PausePriorityClass:
		result.Status, result.Message = Warn, "the PriorityClass of pause pods isn't there; the manager makes it, if it may"
		result.Fix = "apply what `idlecount manifests` prints"
		return result
	case pause == nil:
		result.Status, result.Message = Fail, fmt.Sprintf("the PriorityClass %s, which pause_pod_priority_class_name names, isn't there: no pause pod can be made", pauseName)
		result.Fix = "make it, or take the key away"
		return result
	case job == nil && jobName != "":
		result.Status, result.Message = Fail, fmt.Sprintf("the PriorityClass %s, which priority_class_name names for the jobs, isn't there: no pod of a job can be made", jobName)
		result.Fix = "make it, or take the key away"
		return result
	}
	if err := factory.CheckPausePriority(*pause, job); err != nil {
		result.Status, result.Message, result.Fix = Fail, err.Error(), "nothing is held until then"
		return result
	}
	result.Status, result.Message = OK, fmt.Sprintf("jobs of %q can take the place of its pause pods", r.Name)
	return result
}
