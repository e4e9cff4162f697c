package claim

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestTransient(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	for sentence, test := range map[string]struct {
		err  error
		want bool
	}{
		"nothing":                        {nil, false},
		"connection refused":             {&url.Error{Op: "Get", Err: refused}, true},
		"connection refused, wrapped":    {fmt.Errorf("list: %w", &url.Error{Op: "Get", Err: refused}), true},
		"connection reset":               {&url.Error{Op: "Patch", Err: syscall.ECONNRESET}, true},
		"the connection ended":           {&url.Error{Op: "Get", Err: io.EOF}, true},
		"the answer was cut":             {io.ErrUnexpectedEOF, true},
		"a name that can't be looked up": {&url.Error{Op: "Get", Err: &net.OpError{Op: "dial", Err: &net.DNSError{IsNotFound: true}}}, true},
		"out of time":                    {context.DeadlineExceeded, true},
		"stopped by us":                  {&url.Error{Op: "Get", Err: context.Canceled}, false},
		"503":                            {apierrors.NewServiceUnavailable("x"), true},
		"500":                            {apierrors.NewInternalError(errors.New("etcdserver: request timed out")), true},
		"429":                            {apierrors.NewTooManyRequests("x", 1), true},
		"timeout of the server":          {apierrors.NewServerTimeout(pods, "patch", 1), true},
		"conflict":                       {apierrors.NewConflict(pods, "p", nil), false},
		"not found":                      {apierrors.NewNotFound(pods, "p"), false},
		"forbidden":                      {apierrors.NewForbidden(pods, "p", nil), false},
		"bad request":                    {apierrors.NewBadRequest("x"), false},
		"a certificate that we don't trust": {
			&url.Error{Op: "Get", Err: &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}}, false},
		"something else": {errors.New("x"), false},
	} {
		t.Run(sentence, func(t *testing.T) { require.Equal(t, test.want, Transient(test.err)) })
	}
}
