package manifests_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

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
			require.Empty(t, content.IsPathSegmentName(is.GetName()))
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
