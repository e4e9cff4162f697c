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
)

func accounts(o Options) []document {
	docs := []document{{
		comment: fmt.Sprintf(`Made by "idlecount manifests" for the namespaces: %s. They and %s have to exist.
The service account of the manager (idlecount run).`, strings.Join(o.RunnerNamespaces, ", "), o.Namespace),
		object: account(types.NamespacedName{Namespace: o.Namespace, Name: Name}, componentManager),
	}}
	if o.MakeDriver {
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
		name:    LeaseName, namespace: o.Namespace, component: componentManager, to: self, rights: o.Rights.Lease,
	})
	for _, namespace := range o.RunnerNamespaces {
		docs = slices.Concat(docs,
			granted(grant{
				comment: "What the manager does in namespace " + namespace + ".",
				name:    Name, namespace: namespace, component: componentManager, to: self, rights: o.Rights.Manager,
			}),
			granted(grant{
				comment: "What the driver does in namespace " + namespace + ".",
				name:    DriverName, namespace: namespace, component: componentDriver, to: o.Driver, rights: o.Rights.Driver,
			}))
	}
	if len(o.Rights.Cluster) > 0 {
		docs = slices.Concat(docs, granted(grant{
			comment: "What the manager does with the PriorityClass of pause pods, which is in no namespace. It goes on without.",
			name:    Name, component: componentManager, to: self, rights: o.Rights.Cluster,
		}))
	}
	return docs
}

// grant is a Role that one service account gets, or, without a namespace, a ClusterRole.
type grant struct {
	comment, name, namespace, component string
	to                                  types.NamespacedName
	rights                              []Right
}

func granted(g grant) []document {
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: g.to.Namespace, Name: g.to.Name}}
	if g.namespace == "" {
		return []document{
			{comment: g.comment, text: roleText(g)},
			{object: &rbacv1.ClusterRoleBinding{
				TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRoleBinding"},
				ObjectMeta: metav1.ObjectMeta{Name: g.name, Labels: labels(g.component)},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: g.name},
				Subjects:   subjects,
			}},
		}
	}
	return []document{
		{comment: g.comment, text: roleText(g)},
		{object: &rbacv1.RoleBinding{
			TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "RoleBinding"},
			ObjectMeta: metav1.ObjectMeta{Namespace: g.namespace, Name: g.name, Labels: labels(g.component)},
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
    app.kubernetes.io/name: %s
  name: %s
%srules:
`, rbacv1.SchemeGroupVersion, kind, g.component, Name, g.name, place)
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
