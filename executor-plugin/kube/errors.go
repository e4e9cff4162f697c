package kube

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// explain says what to do about errors that the API server can't explain: who may do what is set elsewhere.
func (c *Client) explain(verb, resource string, err error) error {
	switch {
	case err == nil:
		return nil
	case denied(err, verb):
		return fmt.Errorf("the service account of the runner may not %s %s in namespace %s; the Role that `idlecount manifests` prints lets it: %w",
			verb, resource, c.namespace, err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%s doesn't accept the credentials of the runner: %w", c.config.Host, err)
	}
	if request, ok := errors.AsType[*url.Error](err); ok {
		return &unreachableError{c.config.Host, request}
	}
	return err
}

// unreachableError is a request that got no answer. Its URL, with selectors in its query, says nothing to people.
type unreachableError struct {
	host    string
	request *url.Error
}

func (e *unreachableError) Error() string { return fmt.Sprintf("%s: %v", e.host, e.request.Err) }
func (e *unreachableError) Unwrap() error { return e.request }

// denied tells a verb that RBAC doesn't give from an object that admission refuses; both are "forbidden". The words are
// those of the API server's authorizers: `User "x" cannot create resource "pods" …`.
func denied(err error, verb string) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), " cannot "+verb+" resource ")
}
