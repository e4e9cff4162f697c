package capacity

import (
	"cmp"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"idlecount.dev/idlecount/capacity/status"
)

// bufferObject is a CapacityBuffer as far as its autoscaler speaks in it.
type bufferObject struct {
	Metadata struct{ CreationTimestamp time.Time }
	Status   struct {
		Replicas   int
		Conditions []metav1.Condition
	}
}

// answer is what an autoscaler says of a buffer: for how many jobs it keeps room, and what is in its way.
type answer struct {
	held    int
	trouble *status.Trouble
}

// The conditions that an autoscaler sets.
const (
	bufferReady        = "ReadyForProvisioning" // it has read the buffer and its PodTemplate
	bufferProvisioning = "Provisioning"         // and counts it when it decides about nodes
	bufferQuota        = "LimitedByQuotas"      // to less than was asked for
)

// answersWithin is how long an autoscaler may take to say something of a new buffer.
const answersWithin = 2 * time.Minute

// answer says what becomes of a buffer that asks for so much.
func (b bufferObject) answer(hold int, now time.Time) answer {
	if hold == 0 {
		return answer{} // whatever it says of an empty one
	}
	conditions := b.Status.Conditions
	ready, provisions := meta.FindStatusCondition(conditions, bufferReady), meta.FindStatusCondition(conditions, bufferProvisioning)
	if ready == nil && provisions == nil {
		if now.Sub(b.Metadata.CreationTimestamp) < answersWithin {
			return answer{}
		}
		return answer{trouble: &status.Trouble{Reason: status.Buffer, Message: "no autoscaler has said anything of the CapacityBuffer: " +
			`is there one that knows CapacityBuffers and is told to provide for them? If there is none, set idle_strategy = "pause"`}}
	}
	for _, c := range []*metav1.Condition{ready, provisions} {
		if c != nil && c.Status == metav1.ConditionFalse {
			return answer{trouble: &status.Trouble{Reason: status.Buffer, Message: says(c)}}
		}
	}
	a := answer{}
	// An early version of the autoscaler drops the first condition when it sets the second one.
	if provisions != nil && provisions.Status == metav1.ConditionTrue {
		a.held = min(b.Status.Replicas, hold)
	}
	if limited := meta.FindStatusCondition(conditions, bufferQuota); limited != nil && limited.Status == metav1.ConditionTrue {
		a.trouble = &status.Trouble{Reason: status.Quota, Message: says(limited)}
	}
	return a
}

func says(c *metav1.Condition) string {
	return fmt.Sprintf("the autoscaler says of the CapacityBuffer: %s=%s, %s", c.Type, c.Status, cmp.Or(c.Message, c.Reason))
}
