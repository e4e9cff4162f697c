package claim

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/url"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// Transient says whether an error of an API call may be gone in a moment: a connection that failed or broke, a server
// that restarts, is overloaded or out of time. A write that failed so may have been made all the same.
func Transient(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) {
		return false
	}
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok {
		return status.ErrStatus.Code >= 500 || apierrors.IsTooManyRequests(err) || apierrors.IsTimeout(err)
	}
	return !untrusted(err) && broken(err)
}

// untrusted is a server whose certificate doesn't verify; it won't do so tomorrow.
func untrusted(err error) bool {
	_, ok := errors.AsType[*tls.CertificateVerificationError](err)
	return ok
}

// broken is a connection that failed or broke.
func broken(err error) bool {
	if request, ok := errors.AsType[*url.Error](err); ok && request.Timeout() {
		return true
	}
	if _, ok := errors.AsType[*net.OpError](err); ok { // DNS included
		return true
	}
	return utilnet.IsConnectionReset(err) || utilnet.IsProbableEOF(err) || utilnet.IsTimeout(err) || utilnet.IsHTTP2ConnectionLost(err) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.EPIPE) || errors.Is(err, context.DeadlineExceeded)
}
