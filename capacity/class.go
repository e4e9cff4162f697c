package capacity

import (
	"context"
	"fmt"
	"slices"
	"time"

	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"idlecount.dev/idlecount/capacity/status"
	"idlecount.dev/idlecount/factory"
)

// classesHold is how long what was found of PriorityClasses holds. They change about never, and only their value matters,
// which can't be changed at all.
const classesHold = time.Minute

// classes are the PriorityClasses of the cluster. The zero value is that of one that wasn't asked.
type classes struct {
	read   time.Time
	byName map[string]*schedulingv1.PriorityClass
	global *schedulingv1.PriorityClass // the default of pods that name none; nil = there is none
	err    error
}

// readClasses finds out which classes there are, unless that is known of those that are named.
func (t *term) readClasses(ctx context.Context, named ...string) {
	if now := t.clock.Now(); !t.classes.read.IsZero() && now.Sub(t.classes.read) < classesHold && t.classes.know(named) {
		return
	}
	t.classes = listClasses(ctx, t.client, t.clock.Now())
}

// listClasses asks which classes there are now.
func listClasses(ctx context.Context, client kubernetes.Interface, now time.Time) classes {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	c := classes{read: now, byName: map[string]*schedulingv1.PriorityClass{}}
	list, err := client.SchedulingV1().PriorityClasses().List(ctx, metav1.ListOptions{})
	if err != nil {
		c.err = err
		return c
	}
	for i := range list.Items {
		class := &list.Items[i]
		c.byName[class.Name] = class
		if class.GlobalDefault {
			c.global = class
		}
	}
	return c
}

// know says whether to ask again would be vain: all that are named are there, or RBAC refuses to tell.
func (c classes) know(named []string) bool {
	if c.err != nil {
		return apierrors.IsForbidden(c.err)
	}
	return !slices.ContainsFunc(named, func(name string) bool { return name != "" && c.byName[name] == nil })
}

// unfit says why jobs could not take the place of pause pods. Nil where they can, and where that can't be found out: then
// the API server will tell. Our own class counts as there: it is made where it is missing.
func (c classes) unfit(name string, job factory.JobPriority) *status.Trouble {
	if c.err != nil {
		return nil
	}
	pause := c.byName[name]
	switch {
	case pause != nil:
	case name == factory.PausePriorityClass:
		pause = factory.PriorityClassOfPause()
	default:
		return priorityTrouble(fmt.Sprintf("the cluster has no PriorityClass %s, which pause_pod_priority_class_name names: make it, or take the key away", name))
	}
	of := c.global
	if job.Class != "" {
		if of = c.byName[job.Class]; of == nil {
			return priorityTrouble(fmt.Sprintf("the cluster has no PriorityClass %s, which priority_class_name names for the jobs: make it, or take the key away", job.Class))
		}
	}
	if err := factory.CheckPausePriority(*pause, of); err != nil {
		return priorityTrouble(err.Error())
	}
	return nil
}

// makeClass makes the class of pause pods where it is ours and missing, and says why it can't.
func (t *term) makeClass(ctx context.Context, name string) *status.Trouble {
	if t.classes.err != nil || t.classes.byName[name] != nil || name != factory.PausePriorityClass {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	made, err := t.client.SchedulingV1().PriorityClasses().Create(ctx, factory.PriorityClassOfPause(), metav1.CreateOptions{})
	t.metrics.wrote("create priorityclass", err)
	switch {
	case err == nil:
		t.log.Info("made the PriorityClass of pause pods", "name", name, "value", made.Value)
		return nil
	case apierrors.IsAlreadyExists(err):
		return nil // the next pass sees it, whoever made it
	default:
		return priorityTrouble(fmt.Sprintf("the cluster has no PriorityClass %s, and the manager can't make it: %v; "+
			"apply it from what `idlecount manifests` prints", name, err))
	}
}

func priorityTrouble(message string) *status.Trouble {
	return &status.Trouble{Reason: status.Priority, Message: message}
}
