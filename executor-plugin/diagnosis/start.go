package diagnosis

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"idlecount.dev/idlecount/entrypoint/wire"
	"idlecount.dev/idlecount/factory"
)

// Start is how far a pod has come that is starting.
type Start struct {
	Ready    bool
	Findings []Finding // what is worth a line, in the order in which things happen in a pod
}

// Finding is one thing about a pod that is starting.
type Finding struct {
	Topic   string // what it is about
	Message string
	Stuck   bool // the pod waits for this
	Final   bool // waiting doesn't help
	Gone    bool // for the pod has ended; another one may come up
	Crashed bool // and it has ended by itself, so that another one made like it will do so too
	OfJob   bool // and it is the job that asks for what can't be had, rather than the runner
}

// Thing is the same for findings that say the same, whatever numbers are in them: the ports of two connections, the tries of
// a back-off.
func (f Finding) Thing() string {
	return f.Topic + " " + strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, f.Message)
}

// StartOf reads a pod's status.
func StartOf(pod *corev1.Pod) Start {
	if factory.ReadySince(pod) != nil {
		return Start{Ready: true}
	}
	var s Start
	switch pod.Status.Phase {
	case corev1.PodFailed, corev1.PodSucceeded:
		s.add(Finding{
			Topic: "phase", Message: "the pod ended before it was ready" + because(pod.Status.Reason, pod.Status.Message), Stuck: true,
			Final: true, Gone: true, Crashed: pod.Status.Reason == "", // whoever refuses or ends a pod gives a reason
		})
	default:
	}
	if pod.DeletionTimestamp != nil {
		s.add(Finding{Topic: "deletion", Message: "the pod was deleted before it was ready" + disruption(pod), Stuck: true, Final: true, Gone: true})
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			s.add(Finding{Topic: "node", Message: "waiting for a node" + because(c.Reason, c.Message), Stuck: true})
		}
	}
	if pod.Spec.NodeName != "" {
		s.add(Finding{Topic: "node", Message: "the pod starts on node " + pod.Spec.NodeName})
	}
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if f, ok := container(pod, status); ok {
			s.add(f)
		}
	}
	return s
}

func (s *Start) add(f Finding) { s.Findings = append(s.Findings, f) }

// Final is the first finding that makes waiting pointless.
func (s Start) Final() (Finding, bool) {
	for _, f := range s.Findings {
		if f.Final {
			return f, true
		}
	}
	return Finding{}, false
}

// Stuck is what the pod waits for, "" where it is simply not there yet.
func (s Start) Stuck() string {
	var waits []string
	for _, f := range s.Findings {
		if f.Stuck {
			waits = append(waits, f.Message)
		}
	}
	return strings.Join(waits, "; ")
}

// container finds what one container waits for. Reasons that every container passes through say nothing.
func container(pod *corev1.Pod, status corev1.ContainerStatus) (Finding, bool) {
	f := Finding{Topic: "container " + status.Name, Stuck: true, OfJob: ofJob(status.Name)}
	if waiting := status.State.Waiting; waiting != nil {
		switch waiting.Reason {
		case "", "ContainerCreating", "PodInitializing":
			return Finding{}, false
		}
		f.Message = fmt.Sprintf("container %s (image %s) waits%s", status.Name, imageOf(pod, status.Name), because(waiting.Reason, waiting.Message))
		if waiting.Reason == "ErrImagePull" || waiting.Reason == "ImagePullBackOff" {
			f.Message = fmt.Sprintf("container %s: image %s can't be pulled%s", status.Name, imageOf(pod, status.Name), because("", pullProblem(waiting.Message)))
		}
		f.Final = hopeless(pod, waiting)
		return f, true
	}
	ended := status.State.Terminated
	if ended == nil || sidecar(pod, status.Name) || ended.ExitCode == 0 && status.Name == factory.InitContainer {
		return Finding{}, false
	}
	f.Message = fmt.Sprintf("container %s (image %s) ended with exit code %d before the pod was ready%s",
		status.Name, imageOf(pod, status.Name), ended.ExitCode, because(ended.Reason, ended.Message))
	f.Final = true
	f.OfJob = false // what starts first is ours, not the job's
	return f, true
}

// ofJob says whether a container's image is the job's choice: all but the helper's and our own.
func ofJob(name string) bool {
	return name != string(wire.Helper) && name != factory.InitContainer
}

// hopeless says whether a waiting container waits in vain. The kubelet has no field for it, so its reasons and, for
// images, the registry's words have to do.
func hopeless(pod *corev1.Pod, waiting *corev1.ContainerStateWaiting) bool {
	switch waiting.Reason {
	case "InvalidImageName", "ErrImageNeverPull", "SignatureValidationFailed", "CreateContainerError", "RunContainerError":
		return true
	case "CreateContainerConfigError":
		// The pod's own secrets are made after it; the kubelet looks again.
		return !strings.Contains(waiting.Message, pod.Name)
	case "ErrImagePull", "ImagePullBackOff":
		return imageRefused(waiting.Message)
	default:
		return false
	}
}

// pullProblem is what is wrong in the words of a failed pull. Each part of a container runtime puts its own before it and
// names the image again, and between two tries the kubelet puts "Back-off pulling image" before all that.
func pullProblem(message string) string {
	message = strings.Join(strings.Fields(message), " ")
	if _, after, ok := strings.Cut(message, ": ErrImagePull: "); ok {
		message = after
	} else if strings.HasPrefix(message, "Back-off pulling image ") {
		return "" // it doesn't say why
	}
	for again := true; again; {
		again = false
		for _, of := range []string{"rpc error: ", "failed to pull and unpack image ", "failed to resolve reference ", "failed to resolve image", "failed to do request", "pulling image", "Error response from daemon"} {
			if !strings.HasPrefix(message, of) {
				continue
			}
			if _, after, ok := cutPart(message); ok {
				message, again = after, true
			}
		}
	}
	return message
}

// cutPart cuts the first part of a chain of reasons off. The names of images have colons, so a part ends at ": " only.
func cutPart(message string) (part, rest string, ok bool) {
	if after, found := strings.CutPrefix(message, "rpc error: "); found {
		_, rest, ok = strings.Cut(after, "desc = ")
		return "rpc error", rest, ok
	}
	return strings.Cut(message, ": ")
}

// imageRefused says whether a registry has said no, rather than not answered or been busy.
func imageRefused(message string) bool {
	message = strings.ToLower(message)
	contains := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(message, w) })
	}
	if contains("toomanyrequests", "too many requests", "429", "i/o timeout", "connection refused", "no such host", "deadline exceeded") {
		return false
	}
	return contains("not found", "notfound", "manifest unknown", "name unknown", "does not exist", "access denied", "authorization failed",
		"unauthorized", "401", "forbidden", "insufficient_scope", "no basic auth credentials", "no match for platform", "invalid reference format")
}

func sidecar(pod *corev1.Pod, name string) bool {
	return slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool {
		return c.Name == name && c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
	})
}

func imageOf(pod *corev1.Pod, name string) string {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if c.Name == name {
			return c.Image
		}
	}
	return "unknown"
}

// because joins a reason in Kubernetes' one word and the message for people.
func because(reason, message string) string {
	message = strings.Join(strings.Fields(message), " ")
	switch {
	case reason == "" && message == "":
		return ""
	case message == "":
		return ": " + reason
	case reason == "":
		return ": " + message
	default:
		return ": " + reason + ": " + message
	}
}
