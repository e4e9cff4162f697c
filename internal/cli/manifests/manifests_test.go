package manifests_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"idlecount.dev/idlecount/capacity/patch"
	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/internal/cli/manifests"
)

func options() manifests.Options {
	return manifests.Options{
		Namespace: "idlecount", Image: "registry.example.com/idlecount:1", RunnerNamespaces: []string{"ci", "nightly"},
		DriverNamespaces: []string{"ci", "nightly"},
		Driver:           types.NamespacedName{Namespace: "idlecount", Name: manifests.DriverName}, MakeDriver: true,
		Config: [][]byte{[]byte("[[runners]]\n"), []byte("# second\n")},
		Rights: manifests.Rights{
			Manager: []manifests.Right{{Resource: "pods", Verbs: []string{"list", "watch"}, Why: "sees: pods # of \"pools\""}},
			Lease:   []manifests.Right{{Group: "coordination.k8s.io", Resource: "leases", Verbs: []string{"get"}, Why: "leads"}},
			Driver: []manifests.Right{
				{Resource: "pods/exec", Verbs: []string{"create", "get"}, Why: "runs scripts"},
				{Resource: "pods", Verbs: []string{"patch"}, Why: "claims"},
			},
		},
	}
}

// decode reads each document strictly into its type: a misspelt field is an error.
func decode(t *testing.T, text []byte) []runtime.Object {
	t.Helper()
	var objects []runtime.Object
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		doc, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects
		}
		require.NoError(t, err)
		var kind struct {
			Kind string `json:"kind"`
		}
		require.NoError(t, yaml.Unmarshal(doc, &kind))
		object := map[string]runtime.Object{
			"ServiceAccount": &corev1.ServiceAccount{}, "Secret": &corev1.Secret{}, "Deployment": &appsv1.Deployment{},
			"ClusterRole": &rbacv1.ClusterRole{}, "ClusterRoleBinding": &rbacv1.ClusterRoleBinding{},
			"Role": &rbacv1.Role{}, "RoleBinding": &rbacv1.RoleBinding{}, "PriorityClass": &schedulingv1.PriorityClass{},
		}[kind.Kind]
		require.NotNil(t, object, "kind %q", kind.Kind)
		require.NoError(t, yaml.UnmarshalStrict(doc, object))
		objects = append(objects, object)
	}
}

// find is all objects of a type.
func find[T runtime.Object](objects []runtime.Object) []T {
	var found []T
	for _, o := range objects {
		if t, ok := o.(T); ok {
			found = append(found, t)
		}
	}
	return found
}

func render(t *testing.T, o manifests.Options) []runtime.Object {
	t.Helper()
	out, err := manifests.Render(o)
	require.NoError(t, err)
	return decode(t, out)
}

func TestRolesAreExactlyTheRightsThatTheCodeNames(t *testing.T) {
	o := options()
	rules := map[string][]rbacv1.PolicyRule{}
	for _, role := range find[*rbacv1.Role](render(t, o)) {
		rules[role.Namespace+"/"+role.Name] = role.Rules
	}
	asRules := func(rights []manifests.Right) []rbacv1.PolicyRule {
		var list []rbacv1.PolicyRule
		for _, r := range rights {
			list = append(list, rbacv1.PolicyRule{APIGroups: []string{r.Group}, Resources: []string{r.Resource}, Verbs: r.Verbs})
		}
		return list
	}
	require.Equal(t, map[string][]rbacv1.PolicyRule{
		"idlecount/idlecount-lease":  asRules(o.Rights.Lease),
		"ci/idlecount":               asRules(o.Rights.Manager),
		"ci/idlecount-executor":      asRules(o.Rights.Driver),
		"nightly/idlecount":          asRules(o.Rights.Manager),
		"nightly/idlecount-executor": asRules(o.Rights.Driver),
	}, rules)
}

func TestEveryRoleIsBoundToTheAccountThatNeedsIt(t *testing.T) {
	for sentence, make := range map[string]bool{"an account of ours": true, "an account that exists": false} {
		t.Run(sentence, func(t *testing.T) {
			o := options()
			if !make {
				o.MakeDriver, o.Driver = false, types.NamespacedName{Namespace: "gitlab", Name: "runner"}
			}
			objects := render(t, o)
			bound := map[string]string{}
			for _, b := range find[*rbacv1.RoleBinding](objects) {
				require.Equal(t, "Role", b.RoleRef.Kind)
				require.Len(t, b.Subjects, 1)
				bound[b.Namespace+"/"+b.RoleRef.Name] = b.Subjects[0].Namespace + "/" + b.Subjects[0].Name
			}
			driver := o.Driver.String()
			require.Equal(t, map[string]string{
				"idlecount/idlecount-lease": "idlecount/idlecount",
				"ci/idlecount":              "idlecount/idlecount", "ci/idlecount-executor": driver,
				"nightly/idlecount": "idlecount/idlecount", "nightly/idlecount-executor": driver,
			}, bound)
			var accounts []string
			for _, a := range find[*corev1.ServiceAccount](objects) {
				accounts = append(accounts, a.Namespace+"/"+a.Name)
			}
			want := []string{"idlecount/idlecount"}
			if make {
				want = append(want, driver)
			}
			require.Equal(t, want, accounts)
		})
	}
}

// TestTwoInstallationsShareNothingButThePriorityClass: neither overwrites what the other has, in the same namespaces of jobs
// and in the cluster, and what takes one away leaves the other alone.
func TestTwoInstallationsShareNothingButThePriorityClass(t *testing.T) {
	longest := strings.Repeat("n", 63)
	seen := map[string]string{}
	for _, namespace := range []string{"idlecount", "gitlab", "executors", longest} {
		o := options()
		o.Namespace, o.Driver.Namespace = namespace, namespace
		o.Rights.Cluster = o.Rights.Lease
		roles := map[string]bool{}
		for _, object := range render(t, o) {
			is, err := meta.Accessor(object)
			require.NoError(t, err)
			key := object.GetObjectKind().GroupVersionKind().Kind + " " + is.GetNamespace() + "/" + is.GetName()
			if is.GetLabels()["app.kubernetes.io/component"] == "shared" {
				require.Equal(t, "PriorityClass /idlecount-pause", key)
				continue
			}
			require.NotContains(t, seen, key, "that of the manager in %s", namespace)
			seen[key] = namespace
			roles[key] = true
			if strings.Contains(key, "Role") {
				require.Equal(t, strings.TrimSuffix("idlecount-"+namespace, "-idlecount"), is.GetLabels()["app.kubernetes.io/instance"], key)
			}
			require.Empty(t, path.IsValidPathSegmentName(is.GetName()))
			require.Less(t, len(is.GetName()), 254)
			switch binding := object.(type) {
			case *rbacv1.RoleBinding:
				require.True(t, roles["Role "+is.GetNamespace()+"/"+binding.RoleRef.Name], key)
			case *rbacv1.ClusterRoleBinding:
				require.True(t, roles["ClusterRole /"+binding.RoleRef.Name], key)
			}
		}
	}
	for key, namespace := range map[string]string{
		"Role ci/idlecount": "idlecount", "Role ci/idlecount-executor": "idlecount", "ClusterRole /idlecount": "idlecount",
		"RoleBinding ci/idlecount-gitlab": "gitlab", "RoleBinding ci/idlecount-executor-gitlab": "gitlab", "ClusterRoleBinding /idlecount-gitlab": "gitlab",
	} {
		require.Equal(t, namespace, seen[key], key)
	}
}

// TestWhatIsOfTheWholeCluster: the rights on it are only there where they are asked for, and are the manager's alone.
func TestWhatIsOfTheWholeCluster(t *testing.T) {
	o := options()
	require.Empty(t, find[*rbacv1.ClusterRole](render(t, o)))
	require.Empty(t, find[*rbacv1.ClusterRoleBinding](render(t, o)))

	o.Rights.Cluster = []manifests.Right{{Group: "scheduling.k8s.io", Resource: "priorityclasses", Verbs: []string{"list", "create"}, Why: "makes one"}}
	objects := render(t, o)
	roles, bindings := find[*rbacv1.ClusterRole](objects), find[*rbacv1.ClusterRoleBinding](objects)
	require.Len(t, roles, 1)
	require.Empty(t, roles[0].Namespace)
	require.Equal(t, []rbacv1.PolicyRule{{APIGroups: []string{"scheduling.k8s.io"}, Resources: []string{"priorityclasses"}, Verbs: []string{"list", "create"}}}, roles[0].Rules)
	require.Len(t, bindings, 1)
	require.Equal(t, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: roles[0].Name}, bindings[0].RoleRef)
	require.Equal(t, []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "idlecount", Name: "idlecount"}}, bindings[0].Subjects)

	classes := find[*schedulingv1.PriorityClass](objects)
	require.Len(t, classes, 1)
	require.Equal(t, factory.PausePriorityClass, classes[0].Name)
	require.NoError(t, factory.CheckPausePriority(*classes[0], nil), "any job can take the place of a pause pod")
	require.Equal(t, corev1.PreemptNever, *classes[0].PreemptionPolicy)
	require.False(t, classes[0].GlobalDefault)
}

func TestTheDeploymentReadsEachFileOfTheSecret(t *testing.T) {
	objects := render(t, options())
	secret, deployment := find[*corev1.Secret](objects)[0], find[*appsv1.Deployment](objects)[0]
	require.Equal(t, map[string]string{"config.toml": "[[runners]]\n", "config-2.toml": "# second\n"}, secret.StringData)
	pod := deployment.Spec.Template.Spec
	require.Equal(t, secret.Name, pod.Volumes[0].Secret.SecretName)
	require.Subset(t, pod.Containers[0].Args, []string{"--config=/etc/idlecount/config.toml", "--config=/etc/idlecount/config-2.toml"})
	require.Equal(t, "/etc/idlecount", pod.Containers[0].VolumeMounts[0].MountPath)
	require.Equal(t, deployment.Spec.Selector.MatchLabels, deployment.Spec.Template.Labels)
}

// TestPrometheusFindsTheManagers: by annotations, or with the PodMonitor of the examples.
func TestPrometheusFindsTheManagers(t *testing.T) {
	for sentence, config := range map[string][][]byte{"with a configuration": options().Config, "without": nil} {
		t.Run(sentence, func(t *testing.T) {
			o := options()
			o.Config = config
			template := find[*appsv1.Deployment](render(t, o))[0].Spec.Template
			require.Equal(t, "true", template.Annotations["prometheus.io/scrape"])
			require.Equal(t, "/metrics", template.Annotations["prometheus.io/path"])
			port := template.Spec.Containers[0].Ports[0]
			require.Equal(t, strconv.Itoa(int(port.ContainerPort)), template.Annotations["prometheus.io/port"])

			text, err := os.ReadFile("../../../examples/podmonitor.yaml")
			require.NoError(t, err)
			var monitor struct {
				Metadata metav1.ObjectMeta `json:"metadata"`
				Spec     struct {
					Selector  metav1.LabelSelector `json:"selector"`
					Endpoints []struct {
						Port        string `json:"port"`
						Interval    string `json:"interval"`
						HonorLabels bool   `json:"honorLabels"`
					} `json:"podMetricsEndpoints"`
				} `json:"spec"`
				APIVersion string `json:"apiVersion"`
				Kind       string `json:"kind"`
			}
			require.NoError(t, yaml.UnmarshalStrict(text, &monitor))
			require.Equal(t, o.Namespace, monitor.Metadata.Namespace)
			require.Equal(t, template.Labels, monitor.Spec.Selector.MatchLabels)
			require.Len(t, monitor.Spec.Endpoints, 1)
			require.Equal(t, port.Name, monitor.Spec.Endpoints[0].Port)
			require.True(t, monitor.Spec.Endpoints[0].HonorLabels, "else Prometheus renames our label namespace")
		})
	}
}

func TestAChangedConfigurationRestartsTheManagers(t *testing.T) {
	hash := func(files ...string) string {
		o := options()
		o.Config = nil
		for _, f := range files {
			o.Config = append(o.Config, []byte(f))
		}
		return find[*appsv1.Deployment](render(t, o))[0].Spec.Template.Annotations["idlecount.dev/config"]
	}
	first := hash("a", "b")
	require.Equal(t, first, hash("a", "b"))
	seen := map[string]bool{}
	for _, h := range []string{hash(), hash("a"), hash("b"), hash("ab"), hash("a", "b")} {
		require.False(t, seen[h], "two configurations have one hash")
		seen[h] = true
	}
}

// TestManagerConfigMeansTheSameAndHoldsNoSecret is the whole point of ManagerConfig: the pools have the same names and
// shapes, and nothing of what must stay with GitLab Runner is in it.
func TestManagerConfigMeansTheSameAndHoldsNoSecret(t *testing.T) {
	t.Setenv("CI_TOKEN", "glrt-environmentally-friendly")
	files := []string{`
[[runners]]
  name = "docker"
  url = "https://gitlab.example.com"
  token = "glrt-dockerdockerdocker"
  executor = "docker"
[[runners]]
  name = "one"
  url = "https://gitlab.example.com"
  Token = "glrt-oneoneoneoneoneone"
  executor = "custom"
  environment = ["DEPLOY_KEY=s3cr3t-1"]
  pre_build_script = "s3cr3t-2"
  [runners.cache.s3]
    SecretKey = "s3cr3t-3"
  [runners.kubernetes]
    host = "https://10.0.0.1"
    ca_file = "/etc/ca"
    bearer_token = "s3cr3t-4"
    image = "alpine:3.22"
    helper_image = "helper:1"
    CPU_Request = "500m"
    pull_policy = ["if-not-present"]
    idle_count = 1
    idle_time = "1h"
    idle_entrypoint_image = "entrypoint:1"
    [runners.kubernetes.pod_labels]
      "example.com/team" = "ci"
    [runners.kubernetes.pod_security_context]
      run_as_user = 1000
    [[runners.kubernetes.services]]
      name = "postgres:18"
      environment = ["POSTGRES_DB=x"]
    [[runners.kubernetes.idle_policy]]
      periods = ["* 8-18 * * *"]
      timezone = "Europe/Berlin"
      idle_count = 3
      scale_factor = 0.5
[[runners]]
  name = "two"
  url = "https://gitlab.example.com"
  token = "$CI_TOKEN"
  executor = "custom"
  [runners.kubernetes]
    image = "golang:1.26"
    helper_image = "helper:1"
    idle_entrypoint_image = "entrypoint:1"
`, `
[[runners]]
  name = "two"
  token = "glrt-overrideoverride"
  [runners.kubernetes]
    idle_count = 4
    memory_request = "1Gi"
`}
	files[0] += `
[[runners]]
  name = "room"
  url = "https://gitlab.example.com"
  token = "glrt-roomroomroomroom"
  executor = "kubernetes"
  limit = 7
  [runners.kubernetes]
    cpu_request = "2"
    idle_strategy = "pause"
    idle_count = 3
    idle_quota_headroom = 2
    [runners.kubernetes.autoscaler]
      max_pause_pods = 5
      pause_pod_image = "pause:1"
      pause_pod_priority_class_name = "low"
    [runners.kubernetes.affinity.node_affinity.required_during_scheduling_ignored_during_execution]
      [[runners.kubernetes.affinity.node_affinity.required_during_scheduling_ignored_during_execution.node_selector_terms]]
        match_expressions = [{key = "gpu", operator = "Exists"}]
    [[runners.kubernetes.pod_spec]]
      name = "device"
      patch = "containers: [{name: build, resources: {limits: {example.com/gpu: 1}}}]"
    [[runners.kubernetes.idle_image]]
      image = "big:1"
      cpu_request = "8"
`
	cfg, trimmed := loadTrimmed(t, files)
	require.Len(t, trimmed.Runners, 3)
	for n, r := range trimmed.Runners {
		before := cfg.Runners[n+1]
		require.Equal(t, before.ShortToken(), r.ShortToken())
		require.Equal(t, pools(t, before), pools(t, r))
		require.Equal(t, capacities(t, before), capacities(t, r))
		was, is := before.Kubernetes, r.Kubernetes
		was.Host, was.CAFile = "", ""
		require.Equal(t, was, is, "runner %s", r.Name)
		require.Equal(t, before.Limit, r.Limit)
	}
	contents := make([][]byte, 0, len(files))
	for _, f := range files {
		contents = append(contents, []byte(f))
	}
	out, err := manifests.ManagerConfig(cfg, contents)
	require.NoError(t, err)
	all := bytes.Join(out, nil)
	for _, secret := range []string{"s3cr3t", "oneoneoneoneone", "environmentally", "overrideover", "dockerdocker", "10.0.0.1"} {
		require.NotContains(t, string(all), secret)
	}
}

// loadTrimmed loads files, and what ManagerConfig makes of them.
func loadTrimmed(t *testing.T, files []string) (before, after *config.Config) {
	t.Helper()
	write := func(contents [][]byte) []string {
		var paths []string
		dir := t.TempDir()
		for n, c := range contents {
			path := filepath.Join(dir, string(rune('a'+n))+".toml")
			require.NoError(t, os.WriteFile(path, c, 0o600))
			paths = append(paths, path)
		}
		return paths
	}
	contents := make([][]byte, 0, len(files))
	for _, f := range files {
		contents = append(contents, []byte(f))
	}
	before, err := config.Load(write(contents))
	require.NoError(t, err)
	trimmed, err := manifests.ManagerConfig(before, contents)
	require.NoError(t, err)
	t.Setenv("CI_TOKEN", "") // the manager doesn't have it
	after, err = config.Load(write(trimmed))
	require.NoError(t, err)
	return before, after
}

// capacities are the names of a runner's capacities, and the hashes of what pause pods are made of.
func capacities(t *testing.T, r config.Runner) map[string]string {
	t.Helper()
	hashes := map[string]string{}
	if !r.KeepsCapacity() {
		return hashes
	}
	for _, image := range r.CapacityImages() {
		c, err := factory.CapacityOf(r, image, nil, patch.Apply)
		require.NoError(t, err)
		hashes[c.Name] = c.Hash()
	}
	require.Len(t, hashes, 2)
	return hashes
}

// pools are the names of a runner's pools; a name holds the runner and the shape.
func pools(t *testing.T, r config.Runner) []string {
	t.Helper()
	var names []string
	for _, image := range r.IdleImages() {
		shape, err := factory.ShapeOf(r, factory.Job{Image: image})
		require.NoError(t, err)
		names = append(names, factory.PoolName(r, shape))
	}
	return names
}
