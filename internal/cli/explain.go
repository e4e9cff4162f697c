package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// explain turns an error of a request into what a user needs: which server, found where, and what to check. An error that
// the server gave in its own words stays as it is, but for a hint.
func (c *cluster) explain(err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	if apierrors.IsUnauthorized(err) {
		return &clusterError{fmt.Sprintf("%s doesn't accept the credentials of %s: log in again, or check the user of that context", c.server, c.source), err}
	}
	if apierrors.IsForbidden(err) {
		// The server's message names the user, the verb, the resource and the namespace.
		return fmt.Errorf("%w; `idlecount manifests` prints the rights of the manager and of the driver, docs/cli.md has a Role for people", err)
	}
	if answer := apierrors.APIStatus(nil); errors.As(err, &answer) {
		return err
	}
	if why := unreachable(err); why != "" {
		return &clusterError{fmt.Sprintf("can't reach the API server %s (%s): %s", c.server, c.source, why), err}
	}
	return err
}

// unreachable says why no answer came, and what to check; "" where the error has another cause.
func unreachable(err error) string {
	var (
		dns       *net.DNSError
		op        *net.OpError
		address   *url.Error
		unknownCA x509.UnknownAuthorityError
		hostname  x509.HostnameError
		invalid   x509.CertificateInvalidError
		record    tls.RecordHeaderError
		alert     tls.AlertError
	)
	switch {
	case errors.As(err, &dns):
		return dns.Error() + ". Check the server's name and the network's DNS"
	case errors.As(err, &unknownCA):
		return "its certificate is signed by an authority that the kubeconfig doesn't name. Check certificate-authority, and that the address is that of the cluster"
	case errors.As(err, &hostname), errors.As(err, &invalid):
		return "its certificate doesn't fit: " + innermost(err) + ". Check the server's address and the clock of this machine"
	case errors.Is(err, http.ErrSchemeMismatch), errors.As(err, &record), errors.As(err, &alert):
		return "it doesn't speak TLS with us: " + innermost(err) + ". Check http or https, the port and the client certificate"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &address) && address.Timeout():
		return "no answer. Check that the cluster is up, that the address is right, and VPN, proxy and firewall"
	case errors.As(err, &op):
		return innermost(op) + ". Check that the cluster is up and that the address is right"
	case errors.As(err, &address):
		return innermost(address)
	default:
		return ""
	}
}

// innermost is the last error of a chain: "connection refused" without the addresses that wrappers repeat.
func innermost(err error) string {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err.Error()
		}
		err = next
	}
}
