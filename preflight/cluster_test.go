package preflight_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/e2e/cluster"
	"idlecount.dev/idlecount/e2e/cluster/clustertest"
	"idlecount.dev/idlecount/pool"
	"idlecount.dev/idlecount/pool/claim"
	"idlecount.dev/idlecount/preflight"
)

// ground is a namespace of the real cluster.
type ground struct {
	kubernetes.Interface
	config    *rest.Config
	namespace string
}

func onCluster(t *testing.T) ground {
	t.Helper()
	cfg := rest.CopyConfig(clustertest.RestConfig(t))
	cfg.WarningHandler = rest.NoWarnings{}
	client, err := kubernetes.NewForConfig(cfg)
	require.NoError(t, err)
	return ground{client, cfg, clustertest.Namespace(t)}
}

// load is the configuration of one runner with these lines in its [runners.kubernetes].
func (g ground) load(t *testing.T, lines string) *config.Config {
	t.Helper()
	return load(t, g.namespace, lines)
}

func load(t *testing.T, namespace, lines string) *config.Config {
	t.Helper()
	return loadText(t, `
[[runners]]
  name = "ci"
  url = "https://gitlab.example.com"
  token = "glrt-abcdefghijklmnopqrst"
  executor = "custom"
  [runners.kubernetes]
    namespace = "`+namespace+`"
    image = "127.0.0.1:1/job:1"
    helper_image = "127.0.0.1:1/helper:1"
    idle_entrypoint_image = "127.0.0.1:1/entrypoint:1"
    idle_count = 3
`+lines)
}

func loadText(t *testing.T, text string) *config.Config {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.toml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	cfg, err := config.Load([]string{path})
	require.NoError(t, err)
	return cfg
}

// run returns the results of one check.
func (g ground) run(t *testing.T, o preflight.Options, check preflight.Check) []preflight.Result {
	t.Helper()
	if o.Client == nil {
		o.Client = g
	}
	all, err := preflight.Run(t.Context(), o)
	require.NoError(t, err)
	var results []preflight.Result
	for _, r := range all {
		if r.Check == check {
			results = append(results, r)
		}
	}
	return results
}

func (g ground) one(t *testing.T, o preflight.Options, check preflight.Check) preflight.Result {
	t.Helper()
	results := g.run(t, o, check)
	require.Len(t, results, 1, "%+v", results)
	return results[0]
}

func TestServerOfARealCluster(t *testing.T) {
	t.Parallel()
	g := onCluster(t)
	cfg := g.load(t, "")
	require.Equal(t, preflight.OK, g.one(t, preflight.Options{Config: cfg}, preflight.Version).Status)
	require.Equal(t, preflight.OK, g.one(t, preflight.Options{Config: cfg}, preflight.Clock).Status)
	ahead := g.one(t, preflight.Options{Config: cfg, Now: func() time.Time { return time.Now().Add(10 * time.Minute) }}, preflight.Clock)
	require.Equal(t, preflight.Fail, ahead.Status)
	require.Contains(t, ahead.Message, "ahead of the API server's")

	away := rest.CopyConfig(g.config)
	away.Host = "https://127.0.0.1:1"
	client, err := kubernetes.NewForConfig(away)
	require.NoError(t, err)
	results, err := preflight.Run(t.Context(), preflight.Options{Client: client, Config: cfg})
	require.ErrorContains(t, err, "ask the API server for its version")
	require.Empty(t, results)
}

// account makes a service account with a Role of these rules.
func (g ground) account(t *testing.T, name string, rules []rbacv1.PolicyRule) preflight.Account {
	t.Helper()
	meta := metav1.ObjectMeta{Name: name}
	_, err := g.CoreV1().ServiceAccounts(g.namespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = g.RbacV1().Roles(g.namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = g.RbacV1().RoleBindings(g.namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: g.namespace}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	return preflight.Account{Namespace: g.namespace, Name: name}
}

// as is a client that is a service account.
func (g ground) as(t *testing.T, a preflight.Account) kubernetes.Interface {
	t.Helper()
	cfg := rest.CopyConfig(g.config)
	cfg.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + a.Namespace + ":" + a.Name,
		Groups:   []string{"system:serviceaccounts", "system:authenticated"},
	}
	client, err := kubernetes.NewForConfig(cfg)
	require.NoError(t, err)
	return client
}

func TestRightsOnARealCluster(t *testing.T) {
	t.Parallel()
	g := onCluster(t)
	cfg := g.load(t, "")
	var driverRules []rbacv1.PolicyRule
	for _, r := range claim.Rules() {
		driverRules = append(driverRules, rbacv1.PolicyRule{APIGroups: []string{r.Group}, Resources: []string{r.Resource}, Verbs: r.Verbs})
	}
	manager := g.account(t, "manager", append(pool.Rules(), pool.LeaseRules()...))
	driver := g.account(t, "driver", driverRules)
	nobody := g.account(t, "nobody", []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list", "watch"}}})
	options := func(manager, driver *preflight.Account) preflight.Options {
		return preflight.Options{Config: cfg, LeaseNamespace: g.namespace, Manager: manager, Driver: driver}
	}

	t.Run("two that have all that they need", func(t *testing.T) {
		// The authorizer needs a moment to see the roles.
		require.Eventually(t, func() bool {
			results := g.run(t, options(&manager, &driver), preflight.Rights)
			require.Len(t, results, 3)
			return results[0].Status == preflight.OK && results[1].Status == preflight.OK && results[2].Status == preflight.OK
		}, 20*time.Second, 50*time.Millisecond, "not all rights are found")
	})
	t.Run("one that may only look", func(t *testing.T) {
		results := g.run(t, options(&nobody, nil), preflight.Rights)
		require.Len(t, results, 2)
		require.Equal(t, preflight.Fail, results[0].Status)
		require.Equal(t, "lease", results[0].Object)
		require.Equal(t, "system:serviceaccount:"+g.namespace+":nobody can't keep pools: it may not create, delete pods; "+
			"list, watch, create, patch, delete configmaps; create, patch events", results[1].Message)
		require.Contains(t, results[1].Fix, "idlecount manifests")
	})
	t.Run("ourselves, as whoever we are", func(t *testing.T) {
		o := options(&preflight.Account{}, nil)
		o.Client = g.as(t, nobody)
		results := g.run(t, o, preflight.Rights)
		require.Equal(t, preflight.Fail, results[1].Status)
		require.Contains(t, results[1].Message, "system:serviceaccount:"+g.namespace+":nobody can't keep pools")
	})
	t.Run("another one, whom we may not ask about", func(t *testing.T) {
		o := options(nil, &driver)
		o.Client = g.as(t, nobody)
		r := g.one(t, o, preflight.Rights)
		require.Equal(t, preflight.Unknown, r.Status)
		require.Contains(t, r.Message, "localsubjectaccessreviews")
	})
	t.Run("what else we may not ask is unknown, and not bad", func(t *testing.T) {
		o := options(nil, nil)
		o.Client = g.as(t, nobody)
		require.Equal(t, preflight.Unknown, g.one(t, o, preflight.Admission).Status)
		r := g.one(t, o, preflight.Quota)
		require.Equal(t, preflight.Unknown, r.Status)
		require.Contains(t, r.Fix, "resourcequotas")
	})
}

func TestAdmissionOnARealCluster(t *testing.T) {
	t.Parallel()
	limitRange := func(item corev1.LimitRangeItem) func(*testing.T, ground) {
		return func(t *testing.T, g ground) {
			item.Type = corev1.LimitTypeContainer
			_, err := g.CoreV1().LimitRanges(g.namespace).Create(t.Context(), &corev1.LimitRange{
				ObjectMeta: metav1.ObjectMeta{Name: "range"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{item}},
			}, metav1.CreateOptions{})
			require.NoError(t, err)
		}
	}
	podSecurity := func(mode, level string) func(*testing.T, ground) {
		return func(t *testing.T, g ground) {
			patch := `{"metadata":{"labels":{"pod-security.kubernetes.io/` + mode + `":"` + level + `"}}}`
			_, err := g.CoreV1().Namespaces().Patch(t.Context(), g.namespace, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			require.NoError(t, err)
		}
	}
	one := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	for sentence, c := range map[string]struct {
		prepare      func(*testing.T, ground)
		lines        string
		status       preflight.Status
		message, fix string
	}{
		"nothing in the way":       {nil, "", preflight.OK, "image 127.0.0.1:1/job:1: the API server takes its pods", ""},
		"defaults of a LimitRange": {limitRange(corev1.LimitRangeItem{Default: one}), "", preflight.OK, "and adds a limit of 1 cpu to build", ""},
		"more than a LimitRange allows": {
			limitRange(corev1.LimitRangeItem{Max: one}), `cpu_limit = "2"`, preflight.Fail, "maximum cpu usage per Container is 1, but limit is 2", "LimitRange",
		},
		"Pod Security that enforces": {podSecurity("enforce", "baseline"), "privileged = true", preflight.Fail, `violates PodSecurity "baseline`, "pod_security_context"},
		"Pod Security that warns":    {podSecurity("warn", "restricted"), "", preflight.Warn, `would violate PodSecurity "restricted`, "pod_security_context"},
		"Pod Security that is kept":  {podSecurity("enforce", "baseline"), "", preflight.OK, "takes its pods", ""},
		"no such service account":    {nil, `service_account = "nobody"`, preflight.Fail, `serviceaccount "nobody" not found`, "service_account"},
		"a quota that wants requests": {func(t *testing.T, g ground) {
			g.quota(t, corev1.ResourceList{corev1.ResourceRequestsCPU: resource.MustParse("10")})
		}, "", preflight.Fail, "must specify requests.cpu", "cpu_request"},
		"a quota that is full": {func(t *testing.T, g ground) {
			g.quota(t, corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")})
		}, "", preflight.Warn, "no room for one more pod now", "quota"},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			g := onCluster(t)
			if c.prepare != nil {
				c.prepare(t, g)
			}
			cfg := g.load(t, c.lines)
			var r preflight.Result
			// Admission sees what was made a moment ago a moment later.
			require.Eventually(t, func() bool {
				r = g.one(t, preflight.Options{Config: cfg}, preflight.Admission)
				return r.Status == c.status
			}, 10*time.Second, 100*time.Millisecond, "%+v", &r)
			require.Contains(t, r.Message, c.message)
			require.Contains(t, r.Fix, c.fix)
			require.Equal(t, c.fix == "", r.Fix == "")
			pods, err := g.CoreV1().Pods(g.namespace).List(t.Context(), metav1.ListOptions{})
			require.NoError(t, err)
			require.Empty(t, pods.Items, "a dry run leaves nothing")
		})
	}
}

func (g ground) quota(t *testing.T, hard corev1.ResourceList) {
	t.Helper()
	_, err := g.CoreV1().ResourceQuotas(g.namespace).Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "quota"}, Spec: corev1.ResourceQuotaSpec{Hard: hard},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

func TestQuotasOfARealCluster(t *testing.T) {
	t.Parallel()
	g := onCluster(t)
	cfg := g.load(t, `cpu_request = "500m"
    helper_cpu_request = "100m"
    [[runners.kubernetes.services]]
      name = "127.0.0.1:1/db:1"`)
	r := g.one(t, preflight.Options{Config: cfg}, preflight.Quota)
	require.Equal(t, preflight.OK, r.Status)
	require.Equal(t, "the namespace has no ResourceQuota", r.Message)
	g.quota(t, corev1.ResourceList{corev1.ResourcePods: resource.MustParse("3"), corev1.ResourceRequestsCPU: resource.MustParse("1700m")})
	r = g.one(t, preflight.Options{Config: cfg}, preflight.Quota)
	require.Equal(t, preflight.Fail, r.Status)
	require.Equal(t, "idle pods alone need more than it allows: requests.cpu: 1800m of 1700m", r.Message)
	require.Equal(t, "quota", r.Object)
}

func TestPrioritiesOfARealCluster(t *testing.T) {
	t.Parallel()
	g := onCluster(t)
	high := "high-" + g.namespace
	classes := g.SchedulingV1().PriorityClasses()
	_, err := classes.Create(t.Context(), &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: high}, Value: 10}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, classes.Delete(context.WithoutCancel(t.Context()), high, metav1.DeleteOptions{}))
	})
	class := func(name string) preflight.Options {
		return preflight.Options{Config: g.load(t, "    idle_pause_count = 2\n    autoscaler = {pause_pod_priority_class_name = \""+name+"\"}\n")}
	}
	r := g.one(t, class(high), preflight.Priority)
	require.Equal(t, preflight.Fail, r.Status)
	require.Contains(t, r.Message, `for the jobs of "ci": the PriorityClass `+high)
	require.Contains(t, r.Message, "a job could never take a pause pod's place")
	require.Contains(t, r.Fix, "a class with a lower value")
	require.Contains(t, g.one(t, class("missing-"+g.namespace), preflight.Priority).Message, "isn't there: no pause pod can be made")
	require.Empty(t, g.run(t, preflight.Options{Config: g.load(t, "")}, preflight.Priority), "who keeps no pause pods isn't asked for a class")

	hidden := class(high)
	hidden.Client = g.as(t, g.account(t, "nobody", nil))
	r = g.one(t, hidden, preflight.Priority)
	require.Equal(t, preflight.Unknown, r.Status)
	require.Contains(t, r.Message, "can't see the PriorityClasses")
	require.Contains(t, r.Fix, "list priorityclasses")
}

func TestPullSecretsOfARealCluster(t *testing.T) {
	t.Parallel()
	g := onCluster(t)
	const secret = "s3cr3t-of-the-registry"
	auth := base64.StdEncoding.EncodeToString([]byte("puller:" + secret))
	for _, s := range []*corev1.Secret{
		{
			ObjectMeta: metav1.ObjectMeta{Name: "good"}, Type: corev1.SecretTypeDockerConfigJson,
			Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{"127.0.0.1:1":{"auth":"` + auth + `"}}}`)},
		},
		{ObjectMeta: metav1.ObjectMeta{Name: "opaque"}, Data: map[string][]byte{"password": []byte(secret)}},
		{
			ObjectMeta: metav1.ObjectMeta{Name: "garbled"}, Type: corev1.SecretTypeDockerConfigJson,
			Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{"127.0.0.1:1":{"auth":"` + secret + `"}}}`)},
		},
	} {
		_, err := g.CoreV1().Secrets(g.namespace).Create(t.Context(), s, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	cfg := g.load(t, `image_pull_secrets = ["good", "opaque", "garbled", "missing"]`)
	results := g.run(t, preflight.Options{Config: cfg}, preflight.Image)
	found := map[string]preflight.Status{}
	for _, r := range results {
		found[r.Object] = r.Status
		require.Equal(t, g.namespace, r.Namespace)
	}
	require.Equal(t, map[string]preflight.Status{
		"secret/opaque": preflight.Fail, "secret/garbled": preflight.Fail, "secret/missing": preflight.Warn,
		"127.0.0.1:1/job:1": preflight.Unknown, "127.0.0.1:1/helper:1": preflight.Unknown, "127.0.0.1:1/entrypoint:1": preflight.Unknown,
	}, found)
	encoded, err := json.Marshal(results)
	require.NoError(t, err)
	for _, hidden := range []string{secret, auth, "puller"} {
		require.NotContains(t, string(encoded), hidden)
	}
}

// TestImagesOfTheClustersRegistry: what was published for the cluster's nodes is found, as the nodes find it.
func TestImagesOfTheClustersRegistry(t *testing.T) {
	t.Parallel()
	g := onCluster(t)
	local, err := cluster.Find(t.Context())
	if err != nil {
		t.Skip(err) // the tests run on another cluster, whose registry we don't know
	}
	content, err := random.Image(16, 1)
	require.NoError(t, err)
	published, err := local.Publish(t.Context(), map[string]v1.Image{"preflight": content})
	require.NoError(t, err)
	image := published["preflight"]
	cfg := g.load(t, `idle_images = ["`+image+`", "`+image+`-not"]`)
	found := map[string]preflight.Status{}
	for _, r := range g.run(t, preflight.Options{Config: cfg}, preflight.Image) {
		found[r.Object] = r.Status
	}
	require.Equal(t, preflight.OK, found[image])
	require.Equal(t, preflight.Fail, found[image+"-not"])
}
