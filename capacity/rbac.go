package capacity

import rbacv1 "k8s.io/api/rbac/v1"

// Permission is a rule of RBAC that a Keeper needs, and what for.
type Permission struct {
	rbacv1.PolicyRule
	Why string
}

// Permissions are what a Keeper needs in each namespace of a runner that keeps capacity, besides those of pools: it sees
// pods and keeps anchors as these do.
func Permissions() []Permission {
	return []Permission{
		{rule("apps", "deployments", "list", "watch", "create", "update", "patch", "delete"), "holds capacity by a Deployment of pause pods"},
		{rule("", "resourcequotas", "list", "watch"), "gives pause pods back before a quota keeps jobs out"},
	}
}

// BufferPermissions are needed besides where a runner has idle_strategy = "buffer".
func BufferPermissions() []Permission {
	return []Permission{
		{rule("", "podtemplates", "get", "create", "update", "delete"), "says how large one job is"},
		{rule("autoscaling.x-k8s.io", "capacitybuffers", "get", "create", "update", "delete"), "has the cluster autoscaler keep room"},
	}
}

// ClusterPermissions are needed in the whole cluster: a PriorityClass is in no namespace. Without them a Keeper goes on,
// where the class is there.
func ClusterPermissions() []Permission {
	return []Permission{
		{rule("scheduling.k8s.io", "priorityclasses", "list", "create"), "finds out whether jobs can preempt pause pods, and makes their class where it is missing"},
	}
}

func rule(group, resource string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
}
