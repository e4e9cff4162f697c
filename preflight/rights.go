package preflight

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"idlecount.dev/idlecount/capacity"
	"idlecount.dev/idlecount/config"
	needs "idlecount.dev/idlecount/internal/rights"
	"idlecount.dev/idlecount/pool"
	"idlecount.dev/idlecount/pool/claim"
)

// right is one verb on one resource.
type right struct{ group, resource, verb string }

func (r right) String() string { return r.verb + " " + r.resource }

// role is what one of our programs needs in one namespace.
type role struct {
	object    string // of the result: "manager", "lease", "driver"
	purpose   string
	account   Account
	namespace string
	rights    []right
}

// rolesOf are the roles that are looked at.
func rolesOf(o Options) []role {
	var roles []role
	if o.Manager != nil {
		if o.LeaseNamespace != "" {
			roles = append(roles, role{"lease", "elect a leader", *o.Manager, o.LeaseNamespace, managerRights(pool.LeasePermissions())})
		}
		for _, namespace := range namespacesOf(o.Config) {
			roles = append(roles, role{"manager", "keep pools", *o.Manager, namespace, managerRights(pool.Permissions())})
		}
		roles = append(roles, capacityRoles(o)...)
	}
	if o.Driver != nil {
		for _, namespace := range driverNamespaces(o.Config) {
			roles = append(roles, role{"driver", "run jobs", *o.Driver, namespace, driverRights()})
		}
	}
	return roles
}

// driverNamespaces are those in which GitLab Runner calls the driver: not where all runners keep an executor of GitLab's.
func driverNamespaces(cfg *config.Config) []string {
	called := config.Config{Runners: slices.DeleteFunc(slices.Clone(cfg.Runners), func(r config.Runner) bool {
		return r.Executor != config.ExecutorCustom
	})}
	return namespacesOf(&called)
}

// capacityRoles are those for holding room for jobs, where a runner does.
func capacityRoles(o Options) []role {
	var roles []role
	in := map[string][]right{}
	for _, r := range o.Config.Runners {
		if !r.Managed() || !r.KeepsCapacity() {
			continue
		}
		rights := managerRights(capacity.Permissions())
		if r.Kubernetes.IdleStrategy == config.StrategyBuffer {
			rights = append(rights, managerRights(capacity.BufferPermissions())...)
		}
		in[r.Kubernetes.Namespace] = append(in[r.Kubernetes.Namespace], rights...)
	}
	for _, namespace := range slices.Sorted(maps.Keys(in)) {
		slices.SortFunc(in[namespace], func(a, b right) int {
			return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.resource, b.resource), cmp.Compare(a.verb, b.verb))
		})
		roles = append(roles, role{"capacity", "hold room for jobs", *o.Manager, namespace, slices.Compact(in[namespace])})
	}
	return roles
}

func managerRights(permissions []needs.Permission) []right {
	var rights []right
	for _, p := range permissions {
		for _, verb := range p.Verbs {
			rights = append(rights, right{p.APIGroups[0], p.Resources[0], verb})
		}
	}
	return rights
}

func driverRights() []right {
	var rights []right
	for _, r := range claim.Rules() {
		for _, verb := range r.Verbs {
			rights = append(rights, right{r.Group, r.Resource, verb})
		}
	}
	return rights
}

// rights asks for each verb of each role whether RBAC, or whatever else authorizes, grants it.
func rights(ctx context.Context, o Options) []Result {
	roles := rolesOf(o)
	if len(roles) == 0 {
		return nil
	}
	self := whoAmI(ctx, o.Client)
	results := make([]Result, len(roles))
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i, r := range roles {
		group.Go(func() error {
			results[i] = r.check(ctx, o.Client, self)
			return nil
		})
	}
	_ = group.Wait()
	return results
}

func (r role) check(ctx context.Context, client kubernetes.Interface, self string) Result {
	result := Result{Check: Rights, Namespace: r.namespace, Object: r.object}
	who := self
	if r.account != (Account{}) {
		who = r.account.user()
	}
	var missing []right
	for _, right := range r.rights {
		allowed, err := allowed(ctx, client, r.account, r.namespace, right)
		if err != nil {
			return unknown(result, fmt.Sprintf("can't find out whether %s may %s", who, right), err,
				"ask as somebody who may create localsubjectaccessreviews, or as the account itself (--as "+who+")")
		}
		if !allowed {
			missing = append(missing, right)
		}
	}
	if len(missing) == 0 {
		result.Status = OK
		result.Message = fmt.Sprintf("%s has all %d rights that it needs to %s", who, len(r.rights), r.purpose)
		return result
	}
	result.Status = Fail
	result.Message = fmt.Sprintf("%s can't %s: it may not %s", who, r.purpose, list(missing))
	result.Fix = "apply the Roles that `idlecount manifests` prints"
	return result
}

// list names rights for people, those on one resource together: "list, watch pods; create events".
func list(rights []right) string {
	var resources, texts []string
	verbs := map[string][]string{}
	for _, r := range rights {
		if !slices.Contains(resources, r.resource) {
			resources = append(resources, r.resource)
		}
		verbs[r.resource] = append(verbs[r.resource], r.verb)
	}
	for _, resource := range resources {
		texts = append(texts, strings.Join(verbs[resource], ", ")+" "+resource)
	}
	return strings.Join(texts, "; ")
}

// user is the name by which RBAC knows a service account.
func (a Account) user() string { return "system:serviceaccount:" + a.Namespace + ":" + a.Name }

// allowed asks the API server about one right in one namespace, of an account or of ourselves.
func allowed(ctx context.Context, client kubernetes.Interface, a Account, namespace string, r right) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	resource, sub, _ := strings.Cut(r.resource, "/")
	attributes := &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: r.verb, Group: r.group, Resource: resource, Subresource: sub}
	if a == (Account{}) {
		review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: attributes},
		}, metav1.CreateOptions{})
		if err != nil {
			return false, err
		}
		return review.Status.Allowed, nil
	}
	review, err := client.AuthorizationV1().LocalSubjectAccessReviews(namespace).Create(ctx, &authorizationv1.LocalSubjectAccessReview{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace},
		Spec: authorizationv1.SubjectAccessReviewSpec{
			ResourceAttributes: attributes, User: a.user(),
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + a.Namespace, "system:authenticated"},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}

// whoAmI is the name of the user that we are, for people.
func whoAmI(ctx context.Context, client kubernetes.Interface) string {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || review.Status.UserInfo.Username == "" {
		return "this user" // older than 1.28, or not to be asked
	}
	user := review.Status.UserInfo
	if slices.Contains(user.Groups, "system:masters") {
		return user.Username + " (who may do everything)"
	}
	return user.Username
}
