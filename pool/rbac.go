package pool

import (
	rbacv1 "k8s.io/api/rbac/v1"
)

// Permission is a rule of RBAC that the manager needs, and what for.
type Permission struct {
	rbacv1.PolicyRule
	Why string
}

// Permissions are what the manager needs in each namespace that has pools. It needs them as a Role there: nothing in the
// manager looks at a whole cluster.
func Permissions() []Permission {
	return []Permission{
		{rule("", "pods", "list", "watch"), "sees the pods of its pools"},
		{rule("", "pods", "create", "delete"), "fills pools, removes surplus, expired and failed pods"},
		{rule("", "configmaps", "list", "watch", "create", "patch", "delete"),
			"keeps an anchor for each pool, which owns its idle pods and holds its status"},
		{rule("", "events", "create", "patch"), "says on the anchor what changed"},
	}
}

// LeasePermissions are what the manager needs in the namespace of its lease.
func LeasePermissions() []Permission {
	return []Permission{
		{rule("coordination.k8s.io", "leases", "get", "create", "update", "patch"),
			"one manager leads at a time; the lease also notes which namespaces have pools"},
	}
}

// Rules are Permissions as a Role has them.
func Rules() []rbacv1.PolicyRule { return rulesOf(Permissions()) }

// LeaseRules are LeasePermissions as a Role has them.
func LeaseRules() []rbacv1.PolicyRule { return rulesOf(LeasePermissions()) }

func rulesOf(permissions []Permission) []rbacv1.PolicyRule {
	rules := make([]rbacv1.PolicyRule, 0, len(permissions))
	for _, p := range permissions {
		rules = append(rules, p.PolicyRule)
	}
	return rules
}

func rule(group, resource string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
}
