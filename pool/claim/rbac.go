package claim

// Rule is one permission that a driver needs in the namespaces of its runner's jobs.
type Rule struct {
	Group    string   // API group, "" = core
	Resource string   // with its subresource, e.g. "pods/exec"
	Verbs    []string // as a Role has them
	Why      string   // the code that needs it
}

// Rules is everything that the service account of a runner (of its driver, idlecount-executor) needs, in the namespace of
// the jobs. Nothing of it is cluster-wide.
func Rules() []Rule {
	return []Rule{
		{"", "pods", []string{"list"}, "prepare looks for the job's own pod and for idle ones, run and cleanup find the job's pod"},
		{"", "pods", []string{"patch"}, "prepare claims an idle pod, one conditional patch; or asks for a pause pod's room, where a quota is used up"},
		{"", "pods", []string{"create"}, "prepare makes a pod where no idle one fits the job"},
		{"", "pods", []string{"get"}, "prepare and run look at the pod again after an API error"},
		{"", "pods", []string{"watch"}, "prepare waits for a pod to be ready, run notices at once that a pod ends"},
		{"", "pods", []string{"delete"}, "cleanup ends the job's pod, prepare drops one that expired or didn't start"},
		{"", "pods/exec", []string{"create", "get"}, "prepare shakes hands with the pod, run reaches it where it can't by port-forward (a WebSocket upgrade is a GET)"},
		{"", "pods/portforward", []string{"create", "get"}, "run reaches the pod without starting a process in it, which is faster; without this right each script is an exec"},
		{"", "secrets", []string{"create"}, "prepare hands the job's variables to the services of a new pod"},
	}
}
