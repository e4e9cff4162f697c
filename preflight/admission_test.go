package preflight

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestOurOwnClassMayComeYet: the manager makes it, so a pause pod that is refused for want of it is no failure.
func TestOurOwnClassMayComeYet(t *testing.T) {
	refusal := func(class string) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "p", errors.New("no PriorityClass with name "+class+" was found"))
	}
	pauses := &target{job: podOf("1", "1")}
	r := pauses.judge(Result{}, nil, nil, refusal("idlecount-pause"))
	require.Equal(t, Warn, r.Status, r.Message)
	require.Equal(t, "see the priority's own line", r.Fix)
	require.Equal(t, Fail, pauses.judge(Result{}, nil, nil, refusal("idlecount-pauses")).Status)
}
