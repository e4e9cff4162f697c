package kube

import (
	"fmt"
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
	default:
		return err
	}
}

// denied tells a verb that RBAC doesn't give from an object that admission refuses; both are "forbidden". The words are
// those of the API server's authorizers: `User "x" cannot create resource "pods" …`.
func denied(err error, verb string) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), " cannot "+verb+" resource ")
}
