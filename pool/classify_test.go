package pool

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/pool/plan"
	"idlecount.dev/idlecount/pool/status"
)

func at(seconds int) metav1.Time {
	return metav1.NewTime(time.Date(2026, 3, 2, 12, 0, seconds, 0, time.UTC))
}

func waitingFor(name, reason, message string) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}
}

func endedWith(name string, code int32, reason, message string) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: code, Reason: reason, Message: message, FinishedAt: at(30),
	}}}
}

func running(name string) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
}

func is(kind corev1.PodConditionType, yes bool, seconds int, message string) corev1.PodCondition {
	value := corev1.ConditionFalse
	if yes {
		value = corev1.ConditionTrue
	}
	return corev1.PodCondition{Type: kind, Status: value, LastTransitionTime: at(seconds), Message: message}
}

func TestPodOf(t *testing.T) {
	trouble := func(o plan.Outlook, reason status.Reason, message string) plan.Trouble {
		return plan.Trouble{Outlook: o, Reason: string(reason), Message: message}
	}
	cases := map[string]struct {
		status  corev1.PodStatus
		claimed bool
		state   plan.State
		trouble plan.Trouble
		moved   metav1.Time
		ended   metav1.Time
	}{
		"a pod that was just created": {
			status: corev1.PodStatus{Phase: corev1.PodPending}, state: plan.Warming, moved: at(0),
		},
		"a pod that waits for a node": {
			status:  corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{is(corev1.PodScheduled, false, 1, "0/3 nodes are available")}},
			state:   plan.Warming,
			trouble: trouble(plan.Waits, status.Unschedulable, "0/3 nodes are available"), moved: at(0),
		},
		"a slow pull is no trouble": {
			status: corev1.PodStatus{
				Phase: corev1.PodPending, Conditions: []corev1.PodCondition{is(corev1.PodScheduled, true, 5, ""), is(corev1.ContainersReady, false, 5, ""), is(corev1.PodReady, false, 5, "")},
				InitContainerStatuses: []corev1.ContainerStatus{waitingFor("entrypoint", "PodInitializing", "")},
				ContainerStatuses:     []corev1.ContainerStatus{waitingFor("build", "ContainerCreating", ""), waitingFor("helper", "ContainerCreating", "")},
			},
			state: plan.Warming, moved: at(5),
		},
		"an image that can't be pulled, without the kubelet's frame": {
			status: corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{
				waitingFor("build", "ImagePullBackOff", `Back-off pulling image "r.example.com/a:1": ErrImagePull: rpc error: code = NotFound desc = r.example.com/a:1: not found`),
			}},
			state:   plan.Warming,
			trouble: trouble(plan.Blocked, status.ImagePull, "rpc error: code = NotFound desc = r.example.com/a:1: not found"), moved: at(0),
		},
		"the same at the moment of the try": {
			status: corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{
				waitingFor("build", "ErrImagePull", `rpc error: code = NotFound desc = r.example.com/a:1: not found`),
			}},
			state:   plan.Warming,
			trouble: trouble(plan.Blocked, status.ImagePull, "rpc error: code = NotFound desc = r.example.com/a:1: not found"), moved: at(0),
		},
		"an older kubelet's back-off": {
			status: corev1.PodStatus{Phase: corev1.PodPending, InitContainerStatuses: []corev1.ContainerStatus{
				waitingFor("entrypoint", "ImagePullBackOff", `Back-off pulling image "a:1"`),
			}},
			state:   plan.Warming,
			trouble: trouble(plan.Blocked, status.ImagePull, `Back-off pulling image "a:1"`), moved: at(0),
		},
		"a Secret that is missing": {
			status: corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{
				waitingFor("build", "CreateContainerConfigError", `secret "x" not found`),
			}},
			state:   plan.Warming,
			trouble: trouble(plan.Blocked, status.Config, `container build: secret "x" not found`), moved: at(0),
		},
		"a service that crashes, in its pause": {
			status: corev1.PodStatus{Phase: corev1.PodPending, InitContainerStatuses: []corev1.ContainerStatus{{
				Name: "svc-0", RestartCount: 2, State: waitingFor("", "CrashLoopBackOff", "back-off 20s restarting").State,
				LastTerminationState: endedWith("", 3, "Error", "").State,
			}}},
			state:   plan.Warming,
			trouble: trouble(plan.Blocked, status.Crash, "container svc-0 ended with code 3"), moved: at(0),
		},
		"a service that crashes, while it runs": {
			status: corev1.PodStatus{Phase: corev1.PodPending, InitContainerStatuses: []corev1.ContainerStatus{{
				Name: "svc-0", RestartCount: 2, State: running("").State, LastTerminationState: endedWith("", 137, "OOMKilled", "").State,
			}}},
			state:   plan.Warming,
			trouble: trouble(plan.Blocked, status.Crash, "container svc-0 ended with code 137 (OOMKilled)"), moved: at(0),
		},
		"a pod that is ready": {
			status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{is(corev1.PodReady, true, 9, "")}},
			state:  plan.Idle,
		},
		"a pod whose helper has failed can't come back": {
			status: corev1.PodStatus{
				Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{is(corev1.ContainersReady, false, 9, ""), is(corev1.PodReady, false, 9, "")},
				ContainerStatuses: []corev1.ContainerStatus{running("build"), endedWith("helper", 1, "Error", "boom\n")},
			},
			state:   plan.Warming,
			trouble: trouble(plan.Over, status.Crash, "container helper ended with code 1: boom"), moved: at(0),
		},
		"a pod one of whose containers has ended well is leaving": {
			status: corev1.PodStatus{
				Phase:             corev1.PodRunning,
				ContainerStatuses: []corev1.ContainerStatus{endedWith("build", 0, "Completed", ""), running("helper")},
			},
			state: plan.Expired, ended: at(30),
		},
		"a pod whose node doesn't answer": {
			status: corev1.PodStatus{
				Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{is(corev1.ContainersReady, true, 5, ""), is(corev1.PodReady, false, 9, "")},
				ContainerStatuses: []corev1.ContainerStatus{running("build"), running("helper")},
			},
			state:   plan.Warming,
			trouble: trouble(plan.Lost, "", "node n1 doesn't answer"), moved: at(0),
		},
		"a pod that expired": {
			status: corev1.PodStatus{Phase: corev1.PodSucceeded, ContainerStatuses: []corev1.ContainerStatus{endedWith("build", 0, "Completed", "")}},
			state:  plan.Expired, ended: at(30),
		},
		"a pod that was evicted": {
			status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "The node was low on resource: memory", Conditions: []corev1.PodCondition{
				is(corev1.DisruptionTarget, true, 40, "The node was low on resource: memory"),
			}},
			state:   plan.Failed,
			trouble: plan.Trouble{Outlook: plan.Lost, Message: "The node was low on resource: memory"}, ended: at(40),
		},
		"a pod whose node shut down": {
			status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Terminated", Message: "Pod was terminated in response to imminent node shutdown."},
			state:  plan.Failed, trouble: plan.Trouble{Outlook: plan.Lost, Message: "Pod was terminated in response to imminent node shutdown."}, ended: at(0),
		},
		"a pod whose init container failed": {
			status: corev1.PodStatus{Phase: corev1.PodFailed, InitContainerStatuses: []corev1.ContainerStatus{endedWith("entrypoint", 1, "Error", "no space left")}},
			state:  plan.Failed, trouble: trouble(plan.Over, status.Crash, "container entrypoint ended with code 1: no space left"), ended: at(30),
		},
		"a pod that the kubelet has refused": {
			status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfcpu", Message: "Pod was rejected: Node didn't have enough resource: cpu"},
			state:  plan.Failed, trouble: trouble(plan.Over, status.Unschedulable, "Pod was rejected: Node didn't have enough resource: cpu"), ended: at(0),
		},
		"a claimed pod": {
			status: corev1.PodStatus{Phase: corev1.PodRunning}, claimed: true, state: plan.Claimed,
		},
		"a claimed pod that has ended": {
			status:  corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{endedWith("build", 1, "Error", "")}},
			claimed: true, state: plan.Finished, ended: at(30),
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{
					Name: "p", UID: "u", CreationTimestamp: at(0), Labels: map[string]string{factory.LabelState: factory.StateIdle},
					Annotations: map[string]string{factory.AnnotationIdleTime: "30m0s", factory.AnnotationTemplate: "t"},
				},
				Spec: corev1.PodSpec{NodeName: "n1"}, Status: c.status,
			}
			if c.claimed {
				pod.Labels[factory.LabelState] = factory.StateClaimed
			}
			p := podOf(pod)
			require.Equal(t, c.state, p.State)
			require.Equal(t, c.trouble, p.Trouble)
			require.True(t, p.Moved.Equal(c.moved.Time), "moved %s", p.Moved)
			require.True(t, p.Ended.Equal(c.ended.Time), "ended %s", p.Ended)
			require.Equal(t, 30*time.Minute, p.IdleTime)
			if c.state == plan.Idle {
				require.True(t, p.Ready.Equal(at(9).Time))
			}
			// What the cache keeps of a pod is all that this needs.
			kept, err := slim(pod.DeepCopy())
			require.NoError(t, err)
			require.Equal(t, p, podOf(kept.(*corev1.Pod)))
		})
	}
}

// TestReasonsOfPlanAreThoseOfTheStatus: plan doesn't import status, so nothing else holds them together.
func TestReasonsOfPlanAreThoseOfTheStatus(t *testing.T) {
	require.Equal(t, status.Limit, status.Reason(plan.ReasonLimit))
	require.Equal(t, status.Slow, status.Reason(plan.ReasonSlow))
	for _, state := range []struct {
		plan  plan.State
		phase factory.Phase
	}{
		{plan.Warming, factory.Warming}, {plan.Idle, factory.Idle}, {plan.Claimed, factory.Claimed}, {plan.Expired, factory.Expired},
		{plan.Failed, factory.Failed}, {plan.Finished, factory.Finished}, {plan.Ending, factory.Ending},
	} {
		require.Equal(t, string(state.phase), string(state.plan))
	}
}

func TestRefusalOf(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	g := grant{"", "pods", "create", "ci"}
	terminating := apierrors.NewForbidden(pods, "p", errors.New("unable to create new content in namespace ci because it is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	cases := map[string]struct {
		err     error
		lacks   bool
		reason  status.Reason
		message string
	}{
		"a quota":              {apierrors.NewForbidden(pods, "p", errors.New("exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2")), false, status.Quota, `pods "p" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2`},
		"a missing permission": {apierrors.NewForbidden(pods, "", errors.New(`User "u" cannot create resource "pods"`)), true, status.Access, `the manager needs to create pods in namespace ci: pods is forbidden: User "u" cannot create resource "pods"`},
		"Pod Security":         {apierrors.NewForbidden(pods, "p", errors.New(`violates PodSecurity "restricted:latest"`)), false, status.Admission, `pods "p" is forbidden: violates PodSecurity "restricted:latest"`},
		"an invalid pod":       {apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "p", nil), false, status.Admission, `Pod "p" is invalid`},
		"a webhook":            {apierrors.NewBadRequest(`admission webhook "w" denied the request: no`), false, status.Admission, `admission webhook "w" denied the request: no`},
		"no namespace":         {apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "ci"), false, status.API, `namespaces "ci" not found`},
		"a namespace that is going away": {terminating, false, status.API,
			`pods "p" is forbidden: unable to create new content in namespace ci because it is being terminated`},
		"a name that is taken": {fmt.Errorf("delete or rename it: %w", apierrors.NewAlreadyExists(schema.GroupResource{Resource: "configmaps"}, "p")), false, status.API,
			`delete or rename it: configmaps "p" already exists`},
		"an overloaded API server": {apierrors.NewTooManyRequests("slow down", 1), false, status.API, "slow down"},
		"no API server":            {errors.New("connection refused"), false, status.API, "connection refused"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			why := refusalOf(t.Context(), c.err, g, func(context.Context, grant) bool { return c.lacks })
			require.Equal(t, string(c.reason), why.Reason)
			require.Equal(t, c.message, why.Message)
		})
	}
}

func TestPausesAfterRefusalsGrow(t *testing.T) {
	now := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	r := refusals{}
	var pauses []time.Duration
	for range 40 {
		r = r.after(now, plan.Shortfall{})
		pauses = append(pauses, r.until.Sub(now))
	}
	require.Equal(t, []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second, time.Minute, time.Minute}, pauses[:7])
	require.Equal(t, time.Minute, pauses[39])
}
