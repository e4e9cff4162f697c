package pool_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/rest"

	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/pool"
	"idlecount.dev/idlecount/pool/status"
)

// as makes a manager a service account with the rules of its Role, but for what drop takes away.
func (g *ground) as(drop func(rule *rbacv1.PolicyRule)) option {
	g.t.Helper()
	name := "manager-" + rand.String(5)
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: append(pool.Rules(), pool.LeaseRules()...)}
	for i := range role.Rules {
		drop(&role.Rules[i])
	}
	_, err := g.client.RbacV1().Roles(g.namespace).Create(g.t.Context(), role, metav1.CreateOptions{})
	require.NoError(g.t, err)
	_, err = g.client.CoreV1().ServiceAccounts(g.namespace).Create(g.t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(g.t, err)
	_, err = g.client.RbacV1().RoleBindings(g.namespace).Create(g.t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: g.namespace}},
	}, metav1.CreateOptions{})
	require.NoError(g.t, err)
	user := "system:serviceaccount:" + g.namespace + ":" + name
	for _, rule := range role.Rules {
		for _, verb := range rule.Verbs {
			g.awaitAllowed(user, verb, rule.APIGroups[0], rule.Resources[0])
		}
	}
	return func(_ *pool.Options, rc *rest.Config) {
		rc.Impersonate.UserName = user
		rc.Impersonate.Groups = []string{"system:serviceaccounts", "system:authenticated"}
	}
}

// awaitAllowed waits until the API server's authorizer has seen a role.
func (g *ground) awaitAllowed(user, verb, group, resource string) {
	await(g.t, user+" may "+verb+" "+resource, func() bool {
		review, err := g.client.AuthorizationV1().SubjectAccessReviews().Create(g.t.Context(), &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: g.namespace, Verb: verb, Group: group, Resource: resource,
			}},
		}, metav1.CreateOptions{})
		require.NoError(g.t, err)
		return review.Status.Allowed
	})
}

func nothing(*rbacv1.PolicyRule) {}

// without takes one verb on one resource out of the rules.
func without(verb, res string) func(*rbacv1.PolicyRule) {
	return func(rule *rbacv1.PolicyRule) {
		if rule.Resources[0] != res {
			return
		}
		var verbs []string
		for _, v := range rule.Verbs {
			if v != verb {
				verbs = append(verbs, v)
			}
		}
		rule.Verbs = verbs
		if len(verbs) == 0 {
			rule.Verbs = []string{"escalate"} // a rule must have one; this one allows nothing here
		}
	}
}

func TestTheRulesAreAllThatAManagerNeeds(t *testing.T) {
	t.Parallel()
	g := newGround(t).needsKWOK()
	c := g.config("idle_count = 2", kwok)
	m := g.manage(c, g.as(nothing))
	g.view.awaitPods(t, 2, factory.Idle)
	g.claim(c, "1")
	g.view.await(t, "the claimed pod is replaced", func() bool {
		return len(g.view.in(factory.Idle)) == 2 && len(g.view.in(factory.Claimed)) == 1
	})
	await(t, "the manager is ready", func() bool { return m.get("/readyz").code == http.StatusOK })
	require.Equal(t, http.StatusOK, m.get("/healthz").code)
	require.Contains(t, m.get("/metrics").body, "idlecount_permissions_missing 0")
	m.stop()
	// With all pools gone from the configuration it needs to delete pods and anchors.
	g.manage(g.config("idle_count = 0"), g.as(nothing))
	g.view.await(t, "only the claimed pod is left", func() bool {
		return len(g.view.all()) == 1 && len(g.view.in(factory.Claimed)) == 1
	})
	require.NotContains(t, m.log.String(), "Forbidden")
	require.NotContains(t, m.log.String(), "forbidden")
}

func TestAMissingPermissionIsNamed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ verb, resource string }{{"create", "pods"}, {"watch", "pods"}, {"patch", "configmaps"}, {"create", "configmaps"}, {"update", "leases"}, {"create", "events"}} {
		t.Run(c.verb+" "+c.resource, func(t *testing.T) {
			t.Parallel()
			g := newGround(t)
			m := g.manage(g.config("idle_count = 2", nowhere), g.as(without(c.verb, c.resource)))
			what := c.verb + " " + c.resource + " in namespace " + g.namespace
			m.log.await(t, "the manager needs permissions that it doesn't have")
			m.log.await(t, what)
			ready := m.get("/readyz")
			require.Equal(t, http.StatusServiceUnavailable, ready.code)
			require.Contains(t, ready.body, "missing permission: "+what)
			require.Equal(t, 1, m.metric("idlecount_permissions_missing"))
			if c.verb == "create" && c.resource == "pods" {
				short := g.view.awaitShortfall(t, status.Access)
				require.Contains(t, short.Message, "needs to "+what)
				require.Contains(t, short.Message, "system:serviceaccount:"+g.namespace+":manager-")
			}
		})
	}
}

func TestAPermissionThatIsGrantedLaterIsUsed(t *testing.T) {
	t.Parallel()
	g := newGround(t).needsKWOK()
	m := g.manage(g.config("idle_count = 2", kwok), g.as(without("create", "pods")))
	g.view.awaitShortfall(t, status.Access)
	roles, err := g.client.RbacV1().Roles(g.namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	role := roles.Items[0]
	role.Rules = append(pool.Rules(), pool.LeaseRules()...)
	_, err = g.client.RbacV1().Roles(g.namespace).Update(t.Context(), &role, metav1.UpdateOptions{})
	require.NoError(t, err)
	g.view.awaitPods(t, 2, factory.Idle)
	g.view.awaitNoShortfall(t)
	await(t, "the manager is ready", func() bool { return m.get("/readyz").code == http.StatusOK })
}
