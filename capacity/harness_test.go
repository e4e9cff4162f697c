package capacity_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	authv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"idlecount.dev/idlecount/capacity"
	"idlecount.dev/idlecount/capacity/patch"
	"idlecount.dev/idlecount/capacity/status"
	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/e2e/cluster/clustertest"
	"idlecount.dev/idlecount/factory"
)

// patience bounds every wait for something that is to happen; it only passes where it doesn't.
const patience = 3 * time.Minute

// monday is within working hours.
var monday = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

// ground is a namespace of a real cluster, and a runner of its own.
type ground struct {
	t         *testing.T
	rest      *rest.Config
	client    kubernetes.Interface
	namespace string
	token     string
}

func newGround(t *testing.T) *ground {
	t.Helper()
	g := &ground{t: t, rest: clustertest.RestConfig(t), token: "t" + rand.String(8)}
	var err error
	g.client, err = kubernetes.NewForConfig(g.rest)
	require.NoError(t, err)
	g.namespace = clustertest.Namespace(t)
	g.lease(g.namespace, "managers", "")
	return g
}

// lease makes a managers' lease that somebody holds for an hour, or nobody.
func (g *ground) lease(namespace, name, holder string) {
	g.t.Helper()
	_, err := g.client.CoordinationV1().Leases(namespace).Create(g.t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseDurationSeconds: new(int32(3600)), RenewTime: new(metav1.NewMicroTime(monday)),
		},
	}, metav1.CreateOptions{})
	require.NoError(g.t, err)
}

// release gives a lease back, as its managers do when they end.
func (g *ground) release(namespace, name string) {
	g.t.Helper()
	_, err := g.client.CoordinationV1().Leases(namespace).Patch(g.t.Context(), name, types.MergePatchType, []byte(`{"spec":{"holderIdentity":""}}`), metav1.PatchOptions{})
	require.NoError(g.t, err)
}

// nodes makes so many nodes of the test's own, on which nothing else is placed.
func (g *ground) nodes(n int) {
	g.t.Helper()
	clustertest.NeedsKWOK(g.t, g.client)
	for i := range n {
		name := fmt.Sprintf("%s-%d", g.token, i)
		_, err := g.client.CoreV1().Nodes().Create(g.t.Context(), &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"},
				Labels: map[string]string{"idlecount.dev/test": g.token, corev1.LabelHostname: name},
			},
			Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "kwok.x-k8s.io/node", Value: "fake", Effect: corev1.TaintEffectNoSchedule}}},
		}, metav1.CreateOptions{})
		require.NoError(g.t, err)
		g.t.Cleanup(func() {
			err := g.client.CoreV1().Nodes().Delete(context.WithoutCancel(g.t.Context()), name, metav1.DeleteOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				g.t.Error(err)
			}
		})
	}
}

// config is the ground's runner, of GitLab's own executor, with some keys of its [runners.kubernetes] table.
func (g *ground) config(keys ...string) *config.Config { return g.configOf("kubernetes", 0, keys...) }

func (g *ground) configOf(executor string, limit int, keys ...string) *config.Config {
	path := filepath.Join(g.t.TempDir(), "config.toml")
	text := fmt.Sprintf(`
[[runners]]
  name = "ci"
  url = "https://gitlab.example.com"
  token = "glrt-%s"
  executor = %q
  limit = %d
  [runners.kubernetes]
    namespace = %q
    image = "job:1"
    helper_image = "helper:1"
    idle_entrypoint_image = "entrypoint:1"
    cpu_request = "1"
    memory_request = "64Mi"
    node_selector = {"idlecount.dev/test" = %q}
    node_tolerations = {"kwok.x-k8s.io/node=fake" = "NoSchedule"}
    pod_labels = {team = "ci"}
    %s
`, g.token, executor, limit, g.namespace, g.token, strings.Join(keys, "\n    "))
	require.NoError(g.t, os.WriteFile(path, []byte(text), 0o600))
	c, err := config.Load([]string{path})
	if errors := config.Problems(err); len(errors) > 0 {
		// A runner with the executor "custom" names no driver here; all else has to be right.
		require.NoError(g.t, err, text)
	}
	require.NoError(g.t, err, text)
	return c
}

// onePerNode is a rule by which no two pods of the team are on one node.
const onePerNode = `
    [[runners.kubernetes.affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution]]
      topology_key = "kubernetes.io/hostname"
      label_selector = {match_labels = {team = "ci"}}`

// keeper is a Keeper in its term.
type keeper struct {
	*capacity.Keeper
	t        *testing.T
	log      *logs
	registry *prometheus.Registry
	clock    *clocktesting.FakePassiveClock
	end      func()

	mu      sync.Mutex
	cfg     *config.Config
	changed chan struct{}
}

func (g *ground) keep(cfg *config.Config) *keeper { return g.keepBy(g.namespace, "managers", cfg) }

// keepBy is a Keeper whose managers have another lease than the ground's.
func (g *ground) keepBy(leaseNamespace, leaseName string, cfg *config.Config) *keeper {
	g.t.Helper()
	k := &keeper{
		t: g.t, log: &logs{}, registry: prometheus.NewRegistry(), clock: clocktesting.NewFakePassiveClock(monday),
		cfg: cfg, changed: make(chan struct{}),
	}
	var err error
	k.Keeper, err = capacity.New(capacity.Options{
		Client: g.client, LeaseNamespace: leaseNamespace, LeaseName: leaseName,
		Log: slog.New(slog.NewTextHandler(k.log, nil)), Registry: k.registry, Clock: k.clock,
	})
	require.NoError(g.t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(g.t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		k.Lead(ctx, k.current)
	}()
	k.end = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	g.t.Cleanup(k.end)
	g.t.Cleanup(func() {
		if g.t.Failed() {
			g.t.Logf("log of the keeper:\n%s", k.log)
		}
	})
	return k
}

// asAccount is the ground with a client that has the rights which the package names, those of pools that it builds on, and
// no other; but for those that it lacks, such as "create deployments".
func (g *ground) asAccount(lacks ...string) *ground {
	g.t.Helper()
	rules := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list", "watch", "create", "patch", "delete"}},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "create", "update", "patch"}},
	}
	for _, p := range capacity.Permissions() {
		rules = append(rules, p.PolicyRule)
	}
	for _, lack := range lacks {
		words := strings.Fields(lack)
		for i := range rules {
			if slices.Contains(rules[i].Resources, words[len(words)-1]) {
				rules[i].Verbs = slices.DeleteFunc(slices.Clone(rules[i].Verbs), func(v string) bool { return slices.Contains(words, v) })
			}
		}
	}
	rules = slices.DeleteFunc(rules, func(r rbacv1.PolicyRule) bool { return len(r.Verbs) == 0 })
	var whole []rbacv1.PolicyRule
	for _, p := range capacity.ClusterPermissions() {
		whole = append(whole, p.PolicyRule)
	}
	account := g.allowed(rules)
	ctx, rbac, name := context.WithoutCancel(g.t.Context()), g.client.RbacV1(), metav1.ObjectMeta{Name: "keeper-" + g.token}
	_, err := rbac.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: name, Rules: whole}, metav1.CreateOptions{})
	require.NoError(g.t, err)
	_, err = rbac.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: name, Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: name.Name}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name.Name},
	}, metav1.CreateOptions{})
	require.NoError(g.t, err)
	g.t.Cleanup(func() {
		require.NoError(g.t, rbac.ClusterRoleBindings().Delete(ctx, name.Name, metav1.DeleteOptions{}))
		require.NoError(g.t, rbac.ClusterRoles().Delete(ctx, name.Name, metav1.DeleteOptions{}))
	})
	return account
}

// allowed is the ground with a client that may do this in its namespace, and nothing else.
func (g *ground) allowed(rules []rbacv1.PolicyRule) *ground {
	g.t.Helper()
	ctx, role := context.WithoutCancel(g.t.Context()), metav1.ObjectMeta{Name: "keeper-" + g.token, Namespace: g.namespace}
	rbac := g.client.RbacV1()
	_, err := rbac.Roles(g.namespace).Create(ctx, &rbacv1.Role{ObjectMeta: role, Rules: rules}, metav1.CreateOptions{})
	require.NoError(g.t, err)
	_, err = rbac.RoleBindings(g.namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: role, Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: role.Name}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
	}, metav1.CreateOptions{})
	require.NoError(g.t, err)
	as := rest.CopyConfig(g.rest)
	as.Impersonate.UserName = role.Name
	account := *g
	account.client, err = kubernetes.NewForConfig(as)
	require.NoError(g.t, err)
	last := rules[len(rules)-1]
	await(g.t, "the API server knows the account's rights", func() bool {
		review, err := account.client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authv1.SelfSubjectAccessReview{
			Spec: authv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authv1.ResourceAttributes{
				Namespace: g.namespace, Group: last.APIGroups[0], Resource: last.Resources[0], Verb: last.Verbs[0],
			}},
		}, metav1.CreateOptions{})
		return err == nil && review.Status.Allowed
	})
	return &account
}

func (k *keeper) current() (*config.Config, string, <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.cfg, "", k.changed
}

// reload puts another configuration into force.
func (k *keeper) reload(cfg *config.Config) {
	k.mu.Lock()
	defer k.mu.Unlock()
	close(k.changed)
	k.cfg, k.changed = cfg, make(chan struct{})
}

// at lets it be a time, and has the keeper look.
func (k *keeper) at(now time.Time) {
	k.clock.SetTime(now)
	k.mu.Lock()
	defer k.mu.Unlock()
	close(k.changed)
	k.changed = make(chan struct{})
}

// until lets time go on until something is so.
func (k *keeper) until(what string, is func() bool) {
	k.t.Helper()
	await(k.t, what, func() bool {
		k.at(k.clock.Now().Add(5 * time.Second))
		return is()
	})
}

// metric is the sum of a metric's values and observations.
func (k *keeper) metric(name string, labels ...string) float64 {
	k.t.Helper()
	return clustertest.Metric(k.t, k.registry, name, labels...)
}

func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	require.Eventually(t, is, patience, 100*time.Millisecond, what)
}

// pods are those of the namespace with a label that are there, whatever their phase.
func (g *ground) pods(selector string) []corev1.Pod {
	list, err := g.client.CoreV1().Pods(g.namespace).List(g.t.Context(), metav1.ListOptions{LabelSelector: selector})
	require.NoError(g.t, err)
	return list.Items
}

// nodesOf are the nodes of pods that have one and aren't ending, and how many have none.
func nodesOf(pods []corev1.Pod) (nodes map[string]int, pending int) {
	nodes = map[string]int{}
	for _, p := range pods {
		switch {
		case p.DeletionTimestamp != nil:
		case p.Spec.NodeName == "":
			pending++
		default:
			nodes[p.Spec.NodeName]++
		}
	}
	return nodes, pending
}

func (g *ground) deployment() *appsv1.Deployment {
	list, err := g.client.AppsV1().Deployments(g.namespace).List(g.t.Context(), metav1.ListOptions{LabelSelector: factory.LabelCapacity})
	require.NoError(g.t, err)
	if len(list.Items) == 0 {
		return nil
	}
	require.Len(g.t, list.Items, 1)
	return &list.Items[0]
}

// replicas is what the Deployment asks for, 0 where there is none.
func (g *ground) replicas() int {
	if d := g.deployment(); d != nil {
		return int(*d.Spec.Replicas)
	}
	return 0
}

// status is what the capacity's anchor says, the zero value where there is none.
func (g *ground) status() status.Status {
	list, err := g.client.CoreV1().ConfigMaps(g.namespace).List(g.t.Context(), metav1.ListOptions{LabelSelector: factory.LabelCapacity})
	require.NoError(g.t, err)
	if len(list.Items) == 0 {
		return status.Status{}
	}
	s, err := status.Of(&list.Items[0])
	require.NoError(g.t, err)
	return s
}

// job makes a pod as GitLab's executor does for a job of the runner.
func (g *ground) job(cfg *config.Config, name string) *corev1.Pod {
	g.t.Helper()
	c, err := factory.CapacityOf(cfg.Runners[0], "", nil, patch.Apply)
	require.NoError(g.t, err)
	spec := c.Template.Spec.DeepCopy()
	spec.PriorityClassName, spec.TerminationGracePeriodSeconds = "", nil
	spec.RestartPolicy = corev1.RestartPolicyNever
	spec.Containers[0].Name, spec.Containers[0].Image, spec.Containers[0].Command = "build", "job:1", nil
	pod, err := g.client.CoreV1().Pods(g.namespace).Create(g.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			"manager.runner.gitlab.com/id-short": cfg.Runners[0].ShortToken(), "job.runner.gitlab.com/pod": name, "team": "ci",
		}},
		Spec: *spec,
	}, metav1.CreateOptions{})
	require.NoError(g.t, err)
	return pod
}

func (g *ground) finish(names ...string) {
	for _, name := range names {
		err := g.client.CoreV1().Pods(g.namespace).Delete(g.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
		require.NoError(g.t, err)
	}
}

// quota makes a ResourceQuota, and waits until it is in force.
func (g *ground) quota(pairs ...string) {
	g.t.Helper()
	hard := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		hard[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	_, err := g.client.CoreV1().ResourceQuotas(g.namespace).Create(g.t.Context(),
		&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "ci"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}, metav1.CreateOptions{})
	require.NoError(g.t, err)
	await(g.t, "the quota is counted", func() bool {
		q, err := g.client.CoreV1().ResourceQuotas(g.namespace).Get(g.t.Context(), "ci", metav1.GetOptions{})
		return err == nil && len(q.Status.Hard) > 0
	})
}

// logs are a keeper's log.
type logs struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
