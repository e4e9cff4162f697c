package capacity

import "idlecount.dev/idlecount/internal/rights"

// Permissions are what a Keeper needs in each namespace of a runner that keeps capacity, besides those of pools: it sees
// pods and keeps anchors as these do.
func Permissions() []rights.Permission {
	return []rights.Permission{
		rights.Need("holds capacity by a Deployment of pause pods",
			"apps", "deployments", "list", "watch", "create", "update", "patch", "delete"),
		rights.Need("gives pause pods back before a quota keeps jobs out",
			"", "resourcequotas", "list", "watch"),
		rights.Need("makes room as large as jobs are with what a LimitRange adds to their containers",
			"", "limitranges", "list", "watch"),
	}
}

// BufferPermissions are needed besides where a runner has idle_strategy = "buffer".
func BufferPermissions() []rights.Permission {
	return []rights.Permission{
		rights.Need("says how large one job is",
			"", "podtemplates", "get", "create", "update", "delete"),
		rights.Need("has the cluster autoscaler keep room",
			"autoscaling.x-k8s.io", "capacitybuffers", "get", "create", "update", "delete"),
	}
}

// ClusterPermissions are needed in the whole cluster: a PriorityClass is in no namespace. Without them a Keeper goes on,
// where the class is there.
func ClusterPermissions() []rights.Permission {
	return []rights.Permission{
		rights.Need("finds out whether jobs can preempt pause pods, and makes their class where it is missing",
			"scheduling.k8s.io", "priorityclasses", "list", "create"),
	}
}
