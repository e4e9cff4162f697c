package pool

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"

	"idlecount.dev/idlecount/config"
)

// TestAnotherManagerLeadsWithinFifteenSeconds adds up the worst case by the rules of client-go's leader election: who
// stands by looks at the lease every RetryPeriod and up to JitterFactor times that more. So it sees the last renewal that
// late, waits for LeaseDuration from then, and finds out that late that it is over.
func TestAnotherManagerLeadsWithinFifteenSeconds(t *testing.T) {
	o, err := Options{Client: &kubernetes.Clientset{}, Config: &config.Config{}, Identity: "m", LeaseNamespace: "ci"}.withDefaults()
	require.NoError(t, err)
	look := time.Duration(float64(o.RetryPeriod) * (1 + leaderelection.JitterFactor))
	require.LessOrEqual(t, look+o.LeaseDuration+look, 14*time.Second, "a second is left for the term's beginning")
	require.Greater(t, o.LeaseDuration, o.RenewDeadline)
	require.Greater(t, o.RenewDeadline, time.Duration(float64(o.RetryPeriod)*leaderelection.JitterFactor))
}
