package pool

import (
	rbacv1 "k8s.io/api/rbac/v1"

	"idlecount.dev/idlecount/internal/rights"
)

// Permissions are what the manager needs in each namespace that has pools. It needs them as a Role there: nothing in the
// manager looks at a whole cluster.
func Permissions() []rights.Permission {
	return []rights.Permission{
		rights.Need("sees the pods of its pools",
			"", "pods", "list", "watch"),
		rights.Need("fills pools, removes surplus, expired and failed pods",
			"", "pods", "create", "delete"),
		rights.Need("keeps an anchor for each pool, which owns its idle pods and holds its status",
			"", "configmaps", "list", "watch", "create", "patch", "delete"),
		rights.Need("says on the anchor what changed",
			"", "events", "create", "patch"),
	}
}

// LeasePermissions are what the manager needs in the namespace of its lease.
func LeasePermissions() []rights.Permission {
	return []rights.Permission{
		rights.Need("one manager leads at a time; the lease also notes which namespaces have pools",
			"coordination.k8s.io", "leases", "get", "create", "update", "patch"),
	}
}

// Rules are Permissions as a Role has them.
func Rules() []rbacv1.PolicyRule { return rulesOf(Permissions()) }

// LeaseRules are LeasePermissions as a Role has them.
func LeaseRules() []rbacv1.PolicyRule { return rulesOf(LeasePermissions()) }

func rulesOf(permissions []rights.Permission) []rbacv1.PolicyRule {
	rules := make([]rbacv1.PolicyRule, 0, len(permissions))
	for _, p := range permissions {
		rules = append(rules, p.PolicyRule)
	}
	return rules
}
