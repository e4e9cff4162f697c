package pool_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/pool"
)

// blind hides a lease from a manager, as its Role does where the lease is in a namespace of others.
func blind(lease string) option {
	return func(_ *pool.Options, rc *rest.Config) {
		rc.Wrap(func(next http.RoundTripper) http.RoundTripper { return hiding{next, "/leases/" + lease} })
	}
}

type hiding struct {
	next http.RoundTripper
	path string
}

func (h hiding) RoundTrip(req *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(req.URL.Path, h.path) {
		return h.next.RoundTrip(req)
	}
	body, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden, Message: "leases is forbidden",
	})
	return &http.Response{
		StatusCode: http.StatusForbidden, Request: req, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(body)),
	}, err
}

// TestAPoolThatAnotherManagerHasIsLeftToIt: two configurations with one runner are a mistake, and it must not matter who
// has made it last. Where the one that has the pool ends, the other one goes on.
func TestAPoolThatAnotherManagerHasIsLeftToIt(t *testing.T) {
	t.Parallel()
	g := newGround(t).needsKWOK()
	first := g.manage(g.config("idle_count = 2", kwok))
	g.view.awaitPods(t, 2, factory.Idle)
	second := g.manage(g.config("idle_count = 4", kwok), leaseNamed("another"))
	second.log.await(t, "is left to another manager")
	await(t, "the metric says so", func() bool { return second.metric("idlecount_pool_shortfall", "reason", "Taken") == 1 })
	ready := second.get("/readyz")
	require.Equal(t, http.StatusServiceUnavailable, ready.code)
	require.Contains(t, ready.body, "the managers of lease "+g.namespace+"/idlecount have the pool")
	g.awaitEvent("Taken", "lease "+g.namespace+"/another")
	await(t, "the first one keeps it", func() bool {
		return first.metric("idlecount_pods", "state", "idle") == 2 && first.get("/readyz").code == http.StatusOK
	})
	require.Zero(t, second.metric("idlecount_api_writes_total"), "it has touched nothing")

	first.stop()
	g.view.awaitPods(t, 4, factory.Idle)
	second.log.await(t, "taken over from another manager")
	await(t, "the second one is well", func() bool {
		return second.get("/readyz").code == http.StatusOK && second.metric("idlecount_pool_shortfall") == 0 && second.metric("idlecount_pods", "state", "idle") == 4
	})
}

// TestAPoolThatWasTakenComesBack: a manager that ran once by mistake, and could not see that the pool is kept, must not
// leave it unfilled for ever.
func TestAPoolThatWasTakenComesBack(t *testing.T) {
	t.Parallel()
	g := newGround(t).needsKWOK()
	first := g.manage(g.config("idle_count = 2", kwok))
	g.view.awaitPods(t, 2, factory.Idle)
	second := g.manage(g.config("idle_count = 4", kwok), leaseNamed("another"), blind("idlecount"))
	g.view.awaitPods(t, 4, factory.Idle)
	second.log.await(t, "taken over from another manager")
	await(t, "the first one says that it has lost the pool", func() bool {
		return first.metric("idlecount_pool_shortfall", "reason", "Taken") == 1 && strings.Contains(first.get("/readyz").body, g.namespace+"/another")
	})
	require.Zero(t, first.metric("idlecount_pods"), "what it knew of the pool is old")
	require.Zero(t, first.metric("idlecount_pods_deleted_total"), "it doesn't fight")

	second.stop()
	for _, pod := range g.view.in(factory.Idle) {
		g.delete(pod)
	}
	g.view.awaitPods(t, 2, factory.Idle)
	await(t, "the first one is well", func() bool {
		return first.get("/readyz").code == http.StatusOK && first.metric("idlecount_pool_shortfall") == 0 && first.metric("idlecount_pods", "state", "idle") == 2
	})
}

// relabel changes the label by which the watch knows the ground's only anchor.
func (g *ground) relabel(name, value string) {
	g.t.Helper()
	patch := `{"metadata":{"labels":{"` + factory.LabelPool + `":` + value + `}}}`
	_, err := g.client.CoreV1().ConfigMaps(g.namespace).Patch(g.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(g.t, err)
}

func TestAnAnchorThatLostItsLabelsGetsThemBack(t *testing.T) {
	t.Parallel()
	g := newGround(t).needsKWOK()
	m := g.manage(g.config("idle_count = 2", kwok))
	before := uids(g.view.awaitPods(t, 2, factory.Idle))
	name := g.anchorNames()[0]
	g.relabel(name, "null")
	m.log.await(t, "had lost its labels")
	g.view.await(t, "the anchor is one again", func() bool { return len(g.view.statuses()) == 1 })
	await(t, "the manager is well", func() bool {
		return m.get("/readyz").code == http.StatusOK && m.metric("idlecount_pods", "state", "idle") == 2 && m.metric("idlecount_pool_shortfall") == 0
	})
	require.Equal(t, before, uids(g.view.in(factory.Idle)), "no pod was touched")
	for _, pod := range g.view.in(factory.Idle) {
		g.delete(pod)
		break
	}
	g.view.await(t, "the pool is refilled", func() bool { return len(g.view.in(factory.Idle)) == 2 })
}

func TestAConfigMapThatOnlyHasTheAnchorsNameIsNamed(t *testing.T) {
	t.Parallel()
	g := newGround(t).needsKWOK()
	c := g.config("idle_count = 1", kwok)
	shape, err := factory.ShapeOf(c.Runners[0], factory.Job{})
	require.NoError(t, err)
	name := factory.PoolName(c.Runners[0], shape)
	configMaps := g.client.CoreV1().ConfigMaps(g.namespace)
	_, err = configMaps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"a": "b"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	m := g.manage(c)
	await(t, "the metric says that the pool is short", func() bool {
		return m.metric("idlecount_pool_shortfall", "reason", "API") == 1 && m.metric("idlecount_pods_wanted") == 1
	})
	require.Contains(t, m.get("/readyz").body, "delete or rename it")
	found, err := configMaps.Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	require.Empty(t, found.Labels, "it is somebody else's")
	require.NoError(t, configMaps.Delete(t.Context(), name, metav1.DeleteOptions{}))
	g.view.awaitPods(t, 1, factory.Idle)
	await(t, "the manager is ready", func() bool { return m.get("/readyz").code == http.StatusOK })
}

// TestAllPoolsAreLookedAtWhenPermissionsComeBack: a manager from which a permission is taken away notices with the next write
// that needs it, also where that isn't a create, and makes up for it at once when it has the permission again.
func TestAllPoolsAreLookedAtWhenPermissionsComeBack(t *testing.T) {
	t.Parallel()
	g := newGround(t).needsKWOK()
	m := g.manage(g.config("idle_count = 2", kwok), g.as(nothing))
	g.view.awaitPods(t, 2, factory.Idle)
	await(t, "the manager is ready", func() bool { return m.get("/readyz").code == http.StatusOK })
	roles := g.client.RbacV1().Roles(g.namespace)
	list, err := roles.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	role, full := &list.Items[0], list.Items[0].DeepCopy()
	for i := range role.Rules {
		without("patch", "configmaps")(&role.Rules[i])
	}
	_, err = roles.Update(t.Context(), role, metav1.UpdateOptions{})
	require.NoError(t, err)
	anchor := g.anchorNames()[0]
	await(t, "what the manager has to write isn't written", func() bool { // until the authorizer has seen the role, it is
		_, err := g.client.CoreV1().ConfigMaps(g.namespace).Patch(t.Context(), anchor, types.MergePatchType,
			[]byte(`{"data":{"`+factory.AnchorStatusKey+`":"{}"}}`), metav1.PatchOptions{})
		require.NoError(t, err)
		return strings.Contains(m.get("/readyz").body, "missing permission: patch configmaps")
	})
	require.Equal(t, 1, m.metric("idlecount_permissions_missing"))
	full.ResourceVersion = ""
	_, err = roles.Update(t.Context(), full, metav1.UpdateOptions{})
	require.NoError(t, err)
	m.log.await(t, "has all the permissions")
	g.view.await(t, "the status is written", func() bool {
		for _, s := range g.view.statuses() {
			return s.Want == 2
		}
		return false
	})
}
