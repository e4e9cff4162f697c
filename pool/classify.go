package pool

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"idlecount.dev/idlecount/entrypoint/wire"
	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/pool/plan"
	"idlecount.dev/idlecount/pool/status"
)

// podOf reads off a pod what plan has to know of it.
func podOf(pod *corev1.Pod) plan.Pod {
	p := plan.Pod{
		Name: pod.Name, UID: string(pod.UID),
		State:    plan.State(factory.PhaseOf(pod)),
		Created:  pod.CreationTimestamp.Time,
		Template: pod.Annotations[factory.AnnotationTemplate],
	}
	// Written by us; a pod whose annotation somebody broke counts as one without a timer.
	p.IdleTime, _ = time.ParseDuration(pod.Annotations[factory.AnnotationIdleTime])
	if ready := factory.ReadySince(pod); ready != nil {
		p.Ready = ready.Time
	}
	switch p.State {
	case plan.Warming:
		if left(pod) {
			p.State, p.Ended = plan.Expired, endedAt(pod)
			break
		}
		p.Moved = p.Created
		if c := condition(pod, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionTrue && c.LastTransitionTime.After(p.Moved) {
			p.Moved = c.LastTransitionTime.Time
		}
		p.Trouble = troubleOf(pod)
	case plan.Failed:
		p.Ended, p.Trouble = endedAt(pod), endOf(pod)
	case plan.Expired, plan.Finished:
		p.Ended = endedAt(pod)
	case plan.Claimed:
		p.Deadline = deadlineOf(pod)
	case plan.Idle, plan.Ending:
	}
	return p
}

// deadlineOf is when the kubelet ends a job's pod; zero where the job has no timeout. It counts from the pod's start. A pod
// that no kubelet has begun with would never be ended, so it counts from the claim.
func deadlineOf(pod *corev1.Pod) time.Time {
	if pod.Spec.ActiveDeadlineSeconds == nil {
		return time.Time{}
	}
	began := pod.CreationTimestamp.Time
	if pod.Status.StartTime != nil {
		began = pod.Status.StartTime.Time
	} else if at, err := time.Parse(time.RFC3339, pod.Annotations[factory.AnnotationClaimedAt]); err == nil {
		began = at
	}
	return began.Add(time.Duration(*pod.Spec.ActiveDeadlineSeconds) * time.Second)
}

// left says whether a pod is about to end by its own will: a container of ours has ended well, the other one follows, or
// hangs.
func left(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
		return c.State.Terminated != nil && c.State.Terminated.ExitCode == wire.ExitOK
	})
}

// troubleOf says why a pod that hasn't ended isn't Ready, as far as its status tells. A pod that merely takes its time is
// in no trouble.
func troubleOf(pod *corev1.Pod) plan.Trouble {
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if c.State.Waiting != nil {
			if t := waiting(c); t.Outlook != plan.Fine {
				return t
			}
		}
		// Only services are restarted. In between they run for a moment, which is no recovery.
		if t := c.LastTerminationState.Terminated; t != nil && c.RestartCount > 0 {
			return plan.Trouble{Outlook: plan.Blocked, Reason: string(status.Crash), Message: crash(c.Name, t)}
		}
	}
	for _, c := range pod.Status.ContainerStatuses {
		if c.State.Terminated != nil {
			return plan.Trouble{Outlook: plan.Over, Reason: string(status.Crash), Message: crash(c.Name, c.State.Terminated)}
		}
	}
	if c := condition(pod, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionFalse {
		return plan.Trouble{Outlook: plan.Waits, Reason: string(status.Unschedulable), Message: cmp.Or(c.Message, c.Reason)}
	}
	// The kubelet sets both together. Where they differ, the node controller has taken back Ready, since it hears nothing
	// of the node.
	containers, ready := condition(pod, corev1.ContainersReady), condition(pod, corev1.PodReady)
	if containers != nil && containers.Status == corev1.ConditionTrue && ready != nil {
		return plan.Trouble{Outlook: plan.Lost, Message: "node " + pod.Spec.NodeName + " doesn't answer"}
	}
	return plan.Trouble{}
}

// waiting reads a container that hasn't started; the words are those of the kubelet, which has more of them than these.
func waiting(c corev1.ContainerStatus) plan.Trouble {
	message := cmp.Or(c.State.Waiting.Message, c.State.Waiting.Reason)
	switch c.State.Waiting.Reason {
	case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError",
		"RegistryUnavailable", "SignatureValidationFailed":
		return plan.Trouble{Outlook: plan.Blocked, Reason: string(status.ImagePull), Message: withoutBackOff(message)}
	case "CreateContainerConfigError", "CreateContainerError", "RunContainerError", "PreCreateHookError", "PostStartHookError":
		return plan.Trouble{Outlook: plan.Blocked, Reason: string(status.Config), Message: "container " + c.Name + ": " + message}
	case "CrashLoopBackOff":
		// The message counts seconds; how the container ended last says more.
		if c.LastTerminationState.Terminated != nil {
			message = crash(c.Name, c.LastTerminationState.Terminated)
		}
		return plan.Trouble{Outlook: plan.Blocked, Reason: string(status.Crash), Message: message}
	default:
		return plan.Trouble{}
	}
}

// withoutBackOff takes the kubelet's frame off the error of an image pull, which else would change every few seconds:
// `Back-off pulling image "x": ErrImagePull: what the runtime said`.
func withoutBackOff(message string) string {
	rest, found := strings.CutPrefix(message, "Back-off pulling image ")
	if !found {
		return message
	}
	if _, rest, found = strings.Cut(rest, `": `); !found {
		return message
	}
	if word, words, found := strings.Cut(rest, ": "); found && !strings.Contains(word, " ") {
		return words
	}
	return rest
}

func crash(container string, t *corev1.ContainerStateTerminated) string {
	text := fmt.Sprintf("container %s ended with code %d", container, t.ExitCode)
	if t.Reason != "" && t.Reason != "Error" {
		text += " (" + t.Reason + ")"
	}
	if t.Message != "" {
		text += ": " + strings.TrimSpace(t.Message)
	}
	return text
}

// endOf says why a pod that nobody claimed has failed.
func endOf(pod *corev1.Pod) plan.Trouble {
	words := cmp.Or(pod.Status.Message, pod.Status.Reason)
	if c := condition(pod, corev1.DisruptionTarget); c != nil && c.Status == corev1.ConditionTrue {
		return plan.Trouble{Outlook: plan.Lost, Message: cmp.Or(c.Message, words)}
	}
	switch pod.Status.Reason {
	case "Evicted", "Preempting", "NodeShutdown", "Shutdown", "Terminated", "NodeLost":
		return plan.Trouble{Outlook: plan.Lost, Message: words}
	}
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if t := c.State.Terminated; t != nil && t.ExitCode != 0 {
			return plan.Trouble{Outlook: plan.Over, Reason: string(status.Crash), Message: crash(c.Name, t)}
		}
	}
	if pod.Status.Reason != "" {
		// No container ran: the kubelet has refused the pod (OutOfcpu, NodeAffinity, UnexpectedAdmissionError …).
		return plan.Trouble{Outlook: plan.Over, Reason: string(status.Unschedulable), Message: words}
	}
	return plan.Trouble{Outlook: plan.Over, Reason: string(status.Crash), Message: "the pod has failed, its status doesn't say why"}
}

// endedAt is when a pod ended, as well as its status tells.
func endedAt(pod *corev1.Pod) time.Time {
	at := pod.CreationTimestamp.Time
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if c.State.Terminated != nil && c.State.Terminated.FinishedAt.After(at) {
			at = c.State.Terminated.FinishedAt.Time
		}
	}
	// A pod that was evicted before its containers started has no other sign.
	for _, c := range pod.Status.Conditions {
		if c.LastTransitionTime.After(at) {
			at = c.LastTransitionTime.Time
		}
	}
	return at
}

func condition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == kind {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}
