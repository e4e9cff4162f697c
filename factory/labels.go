package factory

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Prefix starts every label and annotation key of ours.
const Prefix = "idlecount.dev/"

// Labels. A pod of a pool has all but LabelJob from its birth; the claim adds LabelJob and changes LabelState.
const (
	LabelRunner = Prefix + "runner" // short token id of the runner, made a valid label value
	LabelPool   = Prefix + "pool"   // name of the pool
	LabelShape  = Prefix + "shape"  // shape hash
	LabelState  = Prefix + "state"  // StateIdle or StateClaimed
	LabelJob    = Prefix + "job"    // id of the job that claimed the pod
)

// Annotations of pods.
const (
	AnnotationImage     = Prefix + "image"      // the job image as the configuration has it
	AnnotationTemplate  = Prefix + "template"   // template hash
	AnnotationIdleTime  = Prefix + "idle-time"  // the idle time that the pod was born with, a Go duration
	AnnotationClaimedAt = Prefix + "claimed-at" // RFC 3339, written by the claim
	AnnotationWarmth    = Prefix + "warmth"     // "warm" or "cold": what the job got, written by the claim or the cold path
)

// Annotations by which autoscalers decide whether a pod may be evicted; the claim turns them.
const (
	AnnotationSafeToEvict  = "cluster-autoscaler.kubernetes.io/safe-to-evict"
	AnnotationDoNotDisrupt = "karpenter.sh/do-not-disrupt"
)

// Annotations of a pool's anchor by which people tell its manager what to do; "true" turns each on, all else off.
const (
	AnnotationPaused  = Prefix + "paused"  // no pod is created, none is removed for being surplus
	AnnotationDrained = Prefix + "drained" // no idle pod is wanted: the unclaimed ones go, the claimed ones stay
)

// AnchorStatusKey is the key of the anchor's data under which the pool's status stands as JSON.
const AnchorStatusKey = "status.json"

// States that LabelState takes.
const (
	StateIdle    = "idle"
	StateClaimed = "claimed"
)

// Phase is where in its life a pod is, in the words of the CLI, metrics and logs.
type Phase string

// The phases, in order of a pod's life.
const (
	Warming  Phase = "warming"  // exists and is not Ready yet
	Idle     Phase = "idle"     // Ready and claimable
	Claimed  Phase = "claimed"  // bound to one job, for ever
	Expired  Phase = "expired"  // ended by its own idle timer
	Failed   Phase = "failed"   // ended for another reason, unclaimed
	Finished Phase = "finished" // claimed and its containers have ended
	Ending   Phase = "ending"   // deletion has begun, whatever it was
)

// PhaseOf reads a pod's phase from its labels and status. It is the only reader of both.
func PhaseOf(pod *corev1.Pod) Phase {
	claimed := pod.Labels[LabelState] == StateClaimed
	ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	switch {
	case pod.DeletionTimestamp != nil:
		return Ending
	case claimed && ended:
		return Finished
	case claimed:
		return Claimed
	case pod.Status.Phase == corev1.PodSucceeded:
		return Expired
	case ended:
		return Failed
	case ReadySince(pod) != nil:
		return Idle
	default:
		return Warming
	}
}

// ReadySince is when an unclaimed pod became Ready; nil while it is not. The idle time counts from there.
func ReadySince(pod *corev1.Pod) *metav1.Time {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return &c.LastTransitionTime
		}
	}
	return nil
}
