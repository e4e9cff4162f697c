package capacity

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"idlecount.dev/idlecount/capacity/plan"
	"idlecount.dev/idlecount/capacity/status"
	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/factory"
)

func TestWhatKeepsRoomBelowWhatIsWanted(t *testing.T) {
	now := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	class := func(name string, value int32) *schedulingv1.PriorityClass {
		return &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}
	}
	of := func(list ...*schedulingv1.PriorityClass) known {
		c := classes{read: now, byName: map[string]*schedulingv1.PriorityClass{}}
		for _, one := range list {
			c.byName[one.Name] = one
		}
		return known{classes: c}
	}
	refused := &appsv1.Deployment{Status: appsv1.DeploymentStatus{Conditions: []appsv1.DeploymentCondition{
		{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Message: "pods is forbidden: violates PodSecurity"},
	}}}
	for sentence, c := range map[string]struct {
		strategy, class, job string
		want, room           int
		deployment           *appsv1.Deployment
		known                known
		hold                 int
		trouble              status.Reason // "" = none
	}{
		"nothing":                                   {want: 2, known: of(class(factory.PausePriorityClass, -10)), hold: 2},
		"our class is made where it is missing":     {want: 2, known: of(), hold: 2},
		"another class isn't":                       {want: 2, class: "theirs", known: of(), trouble: status.Priority},
		"the class of the jobs neither":             {want: 2, job: "jobs", known: of(), trouble: status.Priority},
		"pods that jobs can't preempt":              {want: 2, class: "theirs", known: of(class("theirs", 10)), trouble: status.Priority},
		"… and jobs of a higher class can":          {want: 2, class: "theirs", job: "jobs", known: of(class("theirs", 10), class("jobs", 11)), hold: 2},
		"… which is no matter where none is wanted": {want: 0, class: "theirs", known: of(class("theirs", 10))},
		"classes that nobody may see": {
			want: 2, class: "theirs", known: known{classes: classes{read: now, err: errors.New("forbidden")}}, hold: 2,
		},
		"a limit":                          {want: 5, room: 3, known: of(), hold: 3, trouble: status.Limit},
		"pods that are refused":            {want: 2, deployment: refused, known: of(), hold: 2, trouble: status.Admission},
		"a cluster without buffers":        {want: 2, strategy: config.StrategyBuffer, known: known{buffers: bufferAPI{asked: now}}, trouble: status.Buffer},
		"a cluster with buffers":           {want: 2, strategy: config.StrategyBuffer, known: known{buffers: bufferAPI{asked: now, version: "v1"}}, hold: 2},
		"a cluster that wasn't asked":      {want: 2, strategy: config.StrategyBuffer, hold: 2},
		"a buffer has no class of its own": {want: 2, class: "theirs", strategy: config.StrategyBuffer, known: of(class("theirs", 10)), hold: 2},
	} {
		t.Run(sentence, func(t *testing.T) {
			r := config.Runner{Limit: 9}
			r.Kubernetes.IdleStrategy = c.strategy
			r.Kubernetes.Autoscaler.PausePodPriorityClassName = c.class
			p := &part{
				spec:       &spec{runner: r, capacity: factory.Capacity{Job: factory.JobPriority{Class: c.job}}},
				now:        now,
				want:       plan.Want{Count: c.want},
				have:       plan.Have{Room: plan.NoBound, QuotaFor: plan.NoBound},
				deployment: c.deployment,
			}
			if c.room > 0 {
				p.have.Room = c.room
			}
			d := p.decide(c.known)
			require.Equal(t, c.want, d.Wanted)
			require.Equal(t, c.hold, d.Hold)
			if c.trouble == "" {
				require.Nil(t, d.trouble)
				return
			}
			require.NotNil(t, d.trouble)
			require.Equal(t, c.trouble, d.trouble.Reason)
		})
	}
}

// TestClassesAreAskedForAgain: a class that was missing may have been made, while a right that is missing stays so for a while.
func TestClassesAreAskedForAgain(t *testing.T) {
	c := classes{byName: map[string]*schedulingv1.PriorityClass{"a": {}}}
	require.True(t, c.know([]string{"a", ""}))
	require.False(t, c.know([]string{"a", "b"}))
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "priorityclasses"}, "", nil)
	require.True(t, classes{err: forbidden}.know([]string{"a"}))
	require.False(t, classes{err: errors.New("away")}.know(nil))
}

func TestTheRoomThatAQuotaLeavesIsCounted(t *testing.T) {
	for headroom, says := range map[int]string{1: "room for 1 more job is kept free", 2: "room for 2 more jobs is kept free"} {
		p := &part{spec: &spec{runner: config.Runner{Kubernetes: config.Kubernetes{IdleQuotaHeadroom: &headroom}}}}
		require.Contains(t, boundTrouble(p, plan.Result{Bound: plan.Quota}).Message, says)
	}
}
