package diagnosis

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"idlecount.dev/idlecount/entrypoint/wire"
)

// End is why nothing runs in a container any more, or won't soon.
type End struct {
	Reason string
	Gone   bool          // it has ended; else it is told to
	Grace  time.Duration // which it has until it is killed
}

// EndOf reads from a pod's status whether a script in one of its containers can go on; false means that it can. What
// becomes of a pod is never the script's doing: the reason is that of a system failure.
func EndOf(pod *corev1.Pod, role wire.Role) (End, bool) {
	name := "pod " + pod.Namespace + "/" + pod.Name
	if why := disruption(pod); why != "" || pod.DeletionTimestamp != nil {
		end := End{Reason: name + " is being ended" + why, Grace: grace(pod)}
		if pod.DeletionTimestamp != nil && why == "" {
			end.Reason = name + " was deleted by somebody"
		}
		end.Gone = over(pod, role)
		return end, true
	}
	if status := statusOf(pod, role); status != nil && status.State.Terminated != nil {
		return End{Reason: name + ": " + terminated(pod, role, status.State.Terminated), Gone: true}, true
	}
	if over(pod, role) {
		return End{Reason: fmt.Sprintf("%s has ended%s", name, phaseReason(pod)), Gone: true}, true
	}
	return End{}, false
}

// GoneOf is for a pod that isn't there any more; last is the pod as it was seen last, or nil.
func GoneOf(namespace, name string, last *corev1.Pod, role wire.Role) End {
	if last != nil {
		if end, ok := EndOf(last, role); ok {
			end.Gone = true
			return end
		}
	}
	return End{Reason: fmt.Sprintf("pod %s/%s is gone: somebody deleted it, or its node", namespace, name), Gone: true}
}

func over(pod *corev1.Pod, role wire.Role) bool {
	if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		return true
	}
	status := statusOf(pod, role)
	return status != nil && status.State.Terminated != nil
}

func phaseReason(pod *corev1.Pod) string {
	if pod.Status.Reason == "DeadlineExceeded" && pod.Spec.ActiveDeadlineSeconds != nil {
		return fmt.Sprintf(": it was active longer than the %s that the job's timeout allows", time.Duration(*pod.Spec.ActiveDeadlineSeconds)*time.Second)
	}
	return because(pod.Status.Reason, pod.Status.Message)
}

func statusOf(pod *corev1.Pod, role wire.Role) *corev1.ContainerStatus {
	for i := range pod.Status.ContainerStatuses {
		if pod.Status.ContainerStatuses[i].Name == string(role) {
			return &pod.Status.ContainerStatuses[i]
		}
	}
	return nil
}

func terminated(pod *corev1.Pod, role wire.Role, state *corev1.ContainerStateTerminated) string {
	switch {
	case pod.Status.Phase == corev1.PodFailed && pod.Status.Reason != "":
		return "it has ended" + phaseReason(pod)
	case state.Reason == "OOMKilled":
		return fmt.Sprintf("container %s was killed since it used more memory than it may%s", role, memoryLimit(pod, role))
	case state.ExitCode == wire.ExitAbandoned:
		return fmt.Sprintf("container %s gave the job up: no driver was attached to it for too long", role)
	case state.ExitCode == wire.ExitStopped:
		return fmt.Sprintf("container %s was told to stop, by its node or by a script (`kill 1`); nothing says why", role)
	default:
		return fmt.Sprintf("container %s ended with exit code %d%s", role, state.ExitCode, because(state.Reason, state.Message))
	}
}

func memoryLimit(pod *corev1.Pod, role wire.Role) string {
	for _, c := range pod.Spec.Containers {
		if c.Name == string(role) {
			if limit, ok := c.Resources.Limits[corev1.ResourceMemory]; ok {
				return " (its limit is " + limit.String() + ")"
			}
		}
	}
	return ""
}

// disruption is why a pod is being ended by the cluster: preemption, eviction, a node that goes away.
func disruption(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			return because(c.Reason, c.Message)
		}
	}
	return ""
}

func grace(pod *corev1.Pod) time.Duration {
	seconds := int64(corev1.DefaultTerminationGracePeriodSeconds)
	if pod.Spec.TerminationGracePeriodSeconds != nil {
		seconds = *pod.Spec.TerminationGracePeriodSeconds
	}
	if pod.DeletionGracePeriodSeconds != nil {
		seconds = *pod.DeletionGracePeriodSeconds
	}
	return time.Duration(seconds) * time.Second
}
