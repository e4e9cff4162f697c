package pool

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"idlecount.dev/idlecount/internal/rights"
)

// recheckAccess is how often a permission that was missing is asked for again.
const recheckAccess = 15 * time.Second

// access knows which of the permissions that the manager needs it doesn't have. A missing one doesn't end the manager: what
// else it may do, it does; the missing one is named in the log, by /readyz, and in the status of the pools that need it.
type access struct {
	client         kubernetes.Interface
	leaseNamespace string
	log            *slog.Logger
	clock          clock.WithTicker
	gauge          prometheus.Gauge
	kick           chan struct{} // asks for a check now

	mu         sync.Mutex
	namespaces []string
	checked    bool
	missing    []grant
	restored   time.Time // when one that was missing was last found to be there
	wake       func()    // told of that; nil for nobody
}

// grant is one verb on one resource in one namespace.
type grant struct{ group, resource, verb, namespace string }

func (g grant) String() string { return g.verb + " " + g.resource + " in namespace " + g.namespace }

func newAccess(o Options, namespaces []string, gauge prometheus.Gauge) *access {
	return &access{
		client: o.Client, leaseNamespace: o.LeaseNamespace, namespaces: namespaces,
		log: o.Log, clock: o.Clock, gauge: gauge, kick: make(chan struct{}, 1),
	}
}

// watch checks now, while something is missing every so often, and whenever recheck asks. It returns when ctx ends.
func (a *access) watch(ctx context.Context) {
	for {
		if err := a.check(ctx); err != nil && ctx.Err() == nil {
			a.log.Warn("can't find out which permissions the manager has", "error", err)
		}
		var again <-chan time.Time
		if len(a.Missing()) > 0 || !a.Checked() {
			again = a.clock.After(recheckAccess)
		}
		select {
		case <-ctx.Done():
			return
		case <-again:
		case <-a.kick:
		}
	}
}

// cover has the permissions in other namespaces checked from now on.
func (a *access) cover(namespaces []string) {
	a.mu.Lock()
	a.namespaces = namespaces
	a.mu.Unlock()
	a.recheck()
}

// recheck asks for a check soon: the API server has refused something.
func (a *access) recheck() {
	select {
	case a.kick <- struct{}{}:
	default:
	}
}

// follow has restored called whenever a permission is back, until another one follows; nil for nobody.
func (a *access) follow(restored func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.wake = restored
}

// restoredAt is when a permission that was missing was last found to be there; zero = never.
func (a *access) restoredAt() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.restored
}

// Missing names the permissions that are missing, for people; empty where none is known to be.
func (a *access) Missing() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	names := make([]string, 0, len(a.missing))
	for _, g := range a.missing {
		names = append(names, g.String())
	}
	return names
}

// Checked says whether Missing knows.
func (a *access) Checked() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.checked
}

// check asks the API server for each permission, and logs what has changed.
func (a *access) check(ctx context.Context) error {
	var missing []grant
	for _, g := range a.needed() {
		allowed, err := a.allowed(ctx, g)
		if err != nil {
			return err
		}
		if !allowed {
			missing = append(missing, g)
		}
	}
	a.mu.Lock()
	before := a.missing
	a.missing, a.checked = missing, true
	var wake func()
	if slices.ContainsFunc(before, func(g grant) bool { return !slices.Contains(missing, g) }) {
		a.restored, wake = a.clock.Now(), a.wake
	}
	a.mu.Unlock()
	if wake != nil {
		wake()
	}
	a.gauge.Set(float64(len(missing)))
	if slices.Equal(before, missing) {
		return nil
	}
	if len(missing) == 0 {
		a.log.Info("the manager has all the permissions that it needs")
		return nil
	}
	a.log.Warn("the manager needs permissions that it doesn't have; `idlecount manifests` prints the roles",
		"missing", strings.Join(a.Missing(), ", "))
	return nil
}

func (a *access) needed() []grant {
	var needed []grant
	add := func(permissions []rights.Permission, namespace string) {
		for _, p := range permissions {
			for _, verb := range p.Verbs {
				needed = append(needed, grant{p.APIGroups[0], p.Resources[0], verb, namespace})
			}
		}
	}
	add(LeasePermissions(), a.leaseNamespace)
	a.mu.Lock()
	namespaces := a.namespaces
	a.mu.Unlock()
	for _, namespace := range namespaces {
		add(Permissions(), namespace)
	}
	return needed
}

// allowed asks the API server about one permission.
func (a *access) allowed(ctx context.Context, g grant) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	review, err := a.client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: g.namespace, Verb: g.verb, Group: g.group, Resource: g.resource,
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("ask whether the manager may %s: %w", g, err)
	}
	return review.Status.Allowed, nil
}
