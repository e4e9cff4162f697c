package capacity

import (
	"context"
	"fmt"
	"time"

	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"idlecount.dev/idlecount/capacity/status"
	"idlecount.dev/idlecount/factory"
)

// classesHold is how long what was found of PriorityClasses holds. They change about never, and only their value matters,
// which can't be changed at all.
const classesHold = time.Minute

// classes are the PriorityClasses of the cluster.
type classes struct {
	read   time.Time
	byName map[string]*schedulingv1.PriorityClass
	global *schedulingv1.PriorityClass // the default of pods that name none; nil = there is none
	err    error
}

// readClasses finds out which classes there are, unless that is known.
func (t *term) readClasses(ctx context.Context) {
	if now := t.clock.Now(); !t.classes.read.IsZero() && now.Sub(t.classes.read) < classesHold {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	c := classes{read: t.clock.Now(), byName: map[string]*schedulingv1.PriorityClass{}}
	list, err := t.client.SchedulingV1().PriorityClasses().List(ctx, metav1.ListOptions{})
	c.err = err
	if err == nil {
		for i := range list.Items {
			class := &list.Items[i]
			c.byName[class.Name] = class
			if class.GlobalDefault {
				c.global = class
			}
		}
	}
	t.classes = c
}

// checkClass makes sure that jobs can take the place of pause pods: the class is there, or is made where it is ours, and a
// job has a higher one. Nil where all is well, or where it can't be found out: then the API server will tell.
func (t *term) checkClass(ctx context.Context, name string, job factory.JobPriority) *status.Trouble {
	t.readClasses(ctx)
	if t.classes.err != nil {
		if !apierrors.IsForbidden(t.classes.err) {
			t.classes.read = time.Time{} // asked again
		}
		return nil
	}
	pause := t.classes.byName[name]
	if pause == nil {
		made, trouble := t.makeClass(ctx, name)
		if trouble != nil {
			return trouble
		}
		pause = made
	}
	of := t.classes.global
	if job.Class != "" {
		if of = t.classes.byName[job.Class]; of == nil {
			return t.priorityTrouble(fmt.Sprintf("the cluster has no PriorityClass %s, which priority_class_name names for the jobs: make it, or take the key away", job.Class))
		}
	}
	if err := factory.CheckPausePriority(*pause, of); err != nil {
		return t.priorityTrouble(err.Error())
	}
	return nil
}

// makeClass makes the class of pause pods where it is ours.
func (t *term) makeClass(ctx context.Context, name string) (*schedulingv1.PriorityClass, *status.Trouble) {
	if name != factory.PausePriorityClass {
		t.classes.read = time.Time{}
		return nil, t.priorityTrouble(fmt.Sprintf("the cluster has no PriorityClass %s, which pause_pod_priority_class_name names: make it, or take the key away", name))
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	made, err := t.client.SchedulingV1().PriorityClasses().Create(ctx, factory.PriorityClassOfPause(), metav1.CreateOptions{})
	t.metrics.wrote("create priorityclass", err)
	t.classes.read = time.Time{} // the next pass sees it, whoever made it
	switch {
	case err == nil:
		t.log.Info("made the PriorityClass of pause pods", "name", name, "value", made.Value)
		return made, nil
	case apierrors.IsAlreadyExists(err):
		return factory.PriorityClassOfPause(), nil
	default:
		return nil, t.priorityTrouble(fmt.Sprintf("the cluster has no PriorityClass %s, and the manager can't make it: %v; "+
			"apply it from what `idlecount manifests` prints", name, err))
	}
}

func (t *term) priorityTrouble(message string) *status.Trouble {
	return &status.Trouble{Reason: status.Priority, Message: message}
}
