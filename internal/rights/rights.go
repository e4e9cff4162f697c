// Package rights is how each part of the manager lists what it needs of RBAC, beside the code that needs it.
package rights

import rbacv1 "k8s.io/api/rbac/v1"

// Permission is a rule of RBAC for one resource, and what it is needed for.
type Permission struct {
	rbacv1.PolicyRule
	Why string
}

// Need is the permission to do something with one resource of an API group ("" is that of pods), and why.
func Need(why, group, resource string, verbs ...string) Permission {
	return Permission{
		PolicyRule: rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs},
		Why:        why,
	}
}
