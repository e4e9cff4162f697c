package manifests

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The components of idlecount, as a label.
const (
	componentManager = "manager"
	componentDriver  = "driver"
	componentShared  = "shared" // of all installations of a cluster
)

// labelInstance tells the Roles and bindings of one installation from those of another.
const labelInstance = "app.kubernetes.io/instance"

func accounts(o Options) []document {
	docs := []document{{
		comment: fmt.Sprintf(`Made by "idlecount manifests" for the namespaces: %s. They and %s have to exist.
The service account of the manager (idlecount run).`, strings.Join(o.RunnerNamespaces, ", "), o.Namespace),
		object: account(types.NamespacedName{Namespace: o.Namespace, Name: Name}, componentManager),
	}}
	if o.MakeDriver && len(o.DriverNamespaces) > 0 {
		docs = append(docs, document{
			comment: "The service account for GitLab Runner, which runs the driver (idlecount-executor).",
			object:  account(o.Driver, componentDriver),
		})
	}
	return docs
}

func account(name types.NamespacedName, component string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
		ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name, Labels: labels(component)},
	}
}

// roles are Roles and their bindings, all of them in a namespace: idle pods need no right on a whole cluster.
func roles(o Options) []document {
	self := types.NamespacedName{Namespace: o.Namespace, Name: Name}
	docs := granted(grant{
		comment: "Leader election of the managers.",
		name:    LeaseName, namespace: o.Namespace, component: componentManager, of: o.Namespace, to: self, rights: o.Rights.Lease,
	})
	for _, namespace := range o.RunnerNamespaces {
		docs = append(docs, granted(grant{
			comment: "What the manager does in namespace " + namespace + ".",
			name:    owned(Name, o.Namespace), namespace: namespace, component: componentManager, of: o.Namespace, to: self, rights: o.Rights.Manager,
		})...)
		if !slices.Contains(o.DriverNamespaces, namespace) {
			continue
		}
		docs = append(docs, granted(grant{
			comment: "What the driver does in namespace " + namespace + ".",
			name:    owned(DriverName, o.Namespace), namespace: namespace, component: componentDriver, of: o.Namespace, to: o.Driver, rights: o.Rights.Driver,
		})...)
	}
	if len(o.Rights.Cluster) > 0 {
		docs = slices.Concat(docs, granted(grant{
			comment: "What the manager does with the PriorityClass of pause pods, which is in no namespace. It goes on without.",
			name:    owned(Name, o.Namespace), component: componentManager, of: o.Namespace, to: self, rights: o.Rights.Cluster,
		}))
	}
	return docs
}

// grant is a Role that one service account gets, or, without a namespace, a ClusterRole.
type grant struct {
	comment, name, namespace, component string
	of                                  string // the manager's namespace
	to                                  types.NamespacedName
	rights                              []Right
}

// labels say whose the grant is too: by it those in namespaces that the configuration has left are found.
func (g grant) labels() map[string]string {
	all := labels(g.component)
	all[labelInstance] = owned(Name, g.of)
	return all
}

func granted(g grant) []document {
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: g.to.Namespace, Name: g.to.Name}}
	if g.namespace == "" {
		return []document{
			{comment: g.comment, text: roleText(g)},
			{object: &rbacv1.ClusterRoleBinding{
				TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRoleBinding"},
				ObjectMeta: metav1.ObjectMeta{Name: g.name, Labels: g.labels()},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: g.name},
				Subjects:   subjects,
			}},
		}
	}
	return []document{
		{comment: g.comment, text: roleText(g)},
		{object: &rbacv1.RoleBinding{
			TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "RoleBinding"},
			ObjectMeta: metav1.ObjectMeta{Namespace: g.namespace, Name: g.name, Labels: g.labels()},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: g.name},
			Subjects:   subjects,
		}},
	}
}

// roleText writes a Role by hand: no encoder keeps comments, and a reader wants to know what each verb is for.
func roleText(g grant) string {
	var b strings.Builder
	kind, place := "Role", "  namespace: "+g.namespace+"\n"
	if g.namespace == "" {
		kind, place = "ClusterRole", ""
	}
	fmt.Fprintf(&b, `apiVersion: %s
kind: %s
metadata:
  labels:
    app.kubernetes.io/component: %s
    %s: %s
    app.kubernetes.io/name: %s
  name: %s
%srules:
`, rbacv1.SchemeGroupVersion, kind, g.component, labelInstance, g.labels()[labelInstance], Name, g.name, place)
	for _, r := range g.rights {
		fmt.Fprintf(&b, "# %s\n- apiGroups: [%q]\n  resources: [%q]\n  verbs: [%s]\n", r.Why, r.Group, r.Resource, quoted(r.Verbs))
	}
	return b.String()
}

func quoted(verbs []string) string {
	list := make([]string, 0, len(verbs))
	for _, v := range verbs {
		list = append(list, fmt.Sprintf("%q", v))
	}
	return strings.Join(list, ", ")
}
