package pool

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"idlecount.dev/idlecount/pool/plan"
	"idlecount.dev/idlecount/pool/status"
)

const (
	firstRefusal = 2 * time.Second // pause after a refused create; doubled with each
	maxRefusal   = time.Minute
)

// refusals are what the API server's refusals have taught of a pool. The zero value is that of a pool that nothing was
// refused to.
type refusals struct {
	inARow    int
	at        time.Time // of the last one
	until     time.Time
	shortfall *plan.Shortfall
}

// after is r with one more refusal.
func (r refusals) after(now time.Time, why plan.Shortfall) refusals {
	pause := firstRefusal << min(r.inARow, 10)
	return refusals{inARow: r.inARow + 1, at: now, until: now.Add(min(pause, maxRefusal)), shortfall: &why}
}

// liftedBy says whether the refusal was for want of a permission, and permissions came back at restored, after it.
func (r refusals) liftedBy(restored time.Time) bool {
	return r.shortfall != nil && r.shortfall.Reason == string(status.Access) && restored.After(r.at)
}

// refusalOf puts an error of the API server in the words of a shortfall. missing tells whether the permission for what was
// tried is missing; it is asked only where that is the question, since "forbidden" has many meanings.
func refusalOf(ctx context.Context, err error, g grant, missing func(context.Context, grant) bool) plan.Shortfall {
	words := err.Error()
	if s := apierrors.APIStatus(nil); errors.As(err, &s) && s.Status().Message != "" {
		words = s.Status().Message
	}
	switch {
	case apierrors.IsForbidden(err) && missing(ctx, g):
		return plan.Shortfall{Reason: string(status.Access), Message: fmt.Sprintf("the manager needs to %s: %s", g, words)}
	case apierrors.IsForbidden(err) && isQuota(words):
		return plan.Shortfall{Reason: string(status.Quota), Message: words}
	case apierrors.IsAlreadyExists(err):
		return plan.Shortfall{Reason: string(status.API), Message: err.Error()} // ours, which say what to do
	case apierrors.IsNotFound(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		// The pod's namespace, or one that is going away.
		return plan.Shortfall{Reason: string(status.API), Message: words}
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return plan.Shortfall{Reason: string(status.Admission), Message: words}
	default:
		return plan.Shortfall{Reason: string(status.API), Message: words}
	}
}

// isQuota tells a ResourceQuota's refusal from others. The API server marks it by nothing but its words: "exceeded quota:"
// where there is no room, "failed quota:" where the pod lacks a request or limit that the quota counts.
func isQuota(words string) bool {
	return strings.Contains(words, "exceeded quota: ") || strings.Contains(words, "failed quota: ")
}

// doubtful says whether a failed create may have succeeded all the same: the API server didn't say no.
func doubtful(err error) bool {
	if s := apierrors.APIStatus(nil); errors.As(err, &s) {
		return apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsInternalError(err)
	}
	return true
}
