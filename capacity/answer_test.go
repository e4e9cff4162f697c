package capacity

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/capacity/status"
)

func TestWhatAnAutoscalerSaysOfABuffer(t *testing.T) {
	now := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	condition := func(kind, is, reason, message string) string {
		return `{"type":"` + kind + `","status":"` + is + `","reason":"` + reason + `","message":"` + message + `","lastTransitionTime":"2026-03-02T11:00:00Z"}`
	}
	ready := condition("ReadyForProvisioning", "True", "Set", "ready")
	injected := condition("Provisioning", "True", "FakePodsInjected", "")
	for sentence, c := range map[string]struct {
		age        time.Duration
		hold       int
		replicas   string
		conditions string
		held       int
		reason     status.Reason
		says       string
	}{
		"nothing yet":                           {age: time.Minute, hold: 3, replicas: "null"},
		"nothing for long":                      {age: 2 * time.Minute, hold: 3, replicas: "null", reason: status.Buffer, says: "no autoscaler has said anything of the CapacityBuffer"},
		"it is ready, and not counted yet":      {hold: 3, replicas: "3", conditions: ready},
		"it is provided for":                    {hold: 3, replicas: "3", conditions: ready + "," + injected, held: 3},
		"an early version says only the second": {hold: 3, replicas: "3", conditions: injected, held: 3},
		"what is surplus isn't held":            {hold: 1, replicas: "3", conditions: ready + "," + injected, held: 1},
		"its template isn't read": {
			hold: 3, replicas: "null", conditions: condition("ReadyForProvisioning", "False", "error", "podtemplates x not found") + "," + condition("Provisioning", "False", "NotReady", "not ready"),
			reason: status.Buffer, says: "the autoscaler says of the CapacityBuffer: ReadyForProvisioning=False, podtemplates x not found",
		},
		"it isn't provided for": {
			hold: 3, replicas: "3", conditions: ready + "," + condition("Provisioning", "False", "FailedToMakeFakePods", ""),
			reason: status.Buffer, says: "the autoscaler says of the CapacityBuffer: Provisioning=False, FailedToMakeFakePods",
		},
		"a quota": {
			hold: 3, replicas: "1", conditions: ready + "," + injected + "," + condition("LimitedByQuotas", "True", "Allocated", "from 3 to 1"),
			held: 1, reason: status.Quota, says: "the autoscaler says of the CapacityBuffer: LimitedByQuotas=True, from 3 to 1",
		},
		"an empty one is not provisioned": {age: time.Hour, replicas: "0", conditions: ready + "," + condition("Provisioning", "False", "BufferIsEmpty", "zero")},
	} {
		t.Run(sentence, func(t *testing.T) {
			var b bufferObject
			require.NoError(t, json.Unmarshal([]byte(`{"metadata":{"creationTimestamp":"`+now.Add(-c.age).Format(time.RFC3339)+
				`"},"status":{"replicas":`+c.replicas+`,"conditions":[`+c.conditions+`]}}`), &b))
			a := b.answer(c.hold, now)
			require.Equal(t, c.held, a.held)
			if c.reason == "" {
				require.Nil(t, a.trouble)
				return
			}
			require.NotNil(t, a.trouble)
			require.Equal(t, c.reason, a.trouble.Reason)
			require.Contains(t, a.trouble.Message, c.says)
		})
	}
}
