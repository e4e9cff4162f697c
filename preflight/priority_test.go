package preflight

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/factory"
)

func TestWhetherJobsCanTakeThePlaceOfPausePods(t *testing.T) {
	class := func(name string, value int32, change ...func(*schedulingv1.PriorityClass)) schedulingv1.PriorityClass {
		c := schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}
		for _, f := range change {
			f(&c)
		}
		return c
	}
	global := func(c *schedulingv1.PriorityClass) { c.GlobalDefault = true }
	never := func(c *schedulingv1.PriorityClass) { c.PreemptionPolicy = new(corev1.PreemptNever) }
	ours := class(factory.PausePriorityClass, factory.PausePriority)
	for sentence, c := range map[string]struct {
		pause, job   string // as the configuration names them
		classes      []schedulingv1.PriorityClass
		status       Status
		message, fix string
	}{
		"ours, and jobs without a class":            {"", "", []schedulingv1.PriorityClass{ours}, OK, "they can take the place of pause pods", ""},
		"ours isn't there yet":                      {"", "", nil, Warn, "the manager makes it, if it may", "idlecount manifests"},
		"another one isn't there":                   {"low", "", []schedulingv1.PriorityClass{ours}, Fail, "the PriorityClass low, which pause_pod_priority_class_name names, isn't there", "take the key away"},
		"that of the jobs isn't there":              {"", "jobs", []schedulingv1.PriorityClass{ours}, Fail, "the PriorityClass jobs, which priority_class_name names for the jobs, isn't there", "take the key away"},
		"one that is as high as that of the jobs":   {"same", "jobs", []schedulingv1.PriorityClass{class("same", 5), class("jobs", 5)}, Fail, "a job could never take a pause pod's place", "give the pause pods a class with a lower value; nothing is held until then"},
		"one that is lower than that of the jobs":   {"low", "jobs", []schedulingv1.PriorityClass{class("low", 4), class("jobs", 5)}, OK, "can take the place", ""},
		"jobs have the cluster's default":           {"low", "", []schedulingv1.PriorityClass{class("low", 4), class("default", 5, global)}, OK, "can take the place", ""},
		"… and that is too low":                     {"low", "", []schedulingv1.PriorityClass{class("low", 4), class("default", -5, global)}, Fail, "a job could never", "nothing is held"},
		"the default is no matter to jobs with one": {"", "jobs", []schedulingv1.PriorityClass{ours, class("jobs", 5), class("default", -50, global)}, OK, "can take the place", ""},
		"jobs that preempt nobody":                  {"", "jobs", []schedulingv1.PriorityClass{ours, class("jobs", 5, never)}, Fail, "preemptionPolicy Never", "nothing is held"},
	} {
		t.Run(sentence, func(t *testing.T) {
			all := rivalsOf(&config.Config{Runners: []config.Runner{keeping("ci", c.pause, c.job)}})
			require.Len(t, all, 1)
			result := all[0].judge(c.classes)
			require.Equal(t, c.status, result.Status, result.Message)
			require.Contains(t, result.Message, c.message)
			require.NotContains(t, result.Message, "give the pause pods a class", "what to do is the fix")
			require.Contains(t, result.Fix, c.fix)
			require.Equal(t, c.fix == "", result.Fix == "")
		})
	}
}

// keeping is a runner that keeps pause pods of a class for jobs of a class.
func keeping(name, pause, job string) config.Runner {
	r := config.Runner{Name: name, HasKubernetes: true, HasIdle: true}
	r.Kubernetes.IdleStrategy, r.Kubernetes.PriorityClassName = config.StrategyPause, job
	r.Kubernetes.Autoscaler.PausePodPriorityClassName = pause
	return r
}

// TestRunnersOfTheSameClassesAreJudgedOnce: with many runners one class that is wrong is one line, which names them all.
func TestRunnersOfTheSameClassesAreJudgedOnce(t *testing.T) {
	require.Equal(t, []rivals{
		{factory.PausePriorityClass, "", []string{`"a"`, `"c"`}},
		{factory.PausePriorityClass, "jobs", []string{`"b"`}},
		{"low", "", []string{`"d"`}},
	}, rivalsOf(&config.Config{Runners: []config.Runner{
		keeping("a", "", ""), keeping("b", "", "jobs"), keeping("c", "", ""), keeping("d", "low", ""), {Name: "e"},
	}}))
}

// TestTheDriverIsAskedForWhereItIsCalled, which is not where all runners keep an executor of GitLab's.
func TestTheDriverIsAskedForWhereItIsCalled(t *testing.T) {
	stock, called := keeping("stock", "", ""), keeping("called", "", "")
	stock.Executor, stock.Kubernetes.Namespace = "kubernetes", "stock"
	called.Executor, called.Kubernetes.Namespace = config.ExecutorCustom, "called"
	roles := rolesOf(Options{Driver: &Account{}, Config: &config.Config{Runners: []config.Runner{stock, called}}})
	require.Len(t, roles, 1)
	require.Equal(t, "driver called", roles[0].object+" "+roles[0].namespace)
}

// TestTheRightsForRoomAreAskedForWhereSomeIsHeld: once for each namespace, with those of buffers where there are some.
func TestTheRightsForRoomAreAskedForWhereSomeIsHeld(t *testing.T) {
	runner := func(namespace, strategy string, beside int) config.Runner {
		r := config.Runner{Executor: config.ExecutorCustom, HasKubernetes: true, HasIdle: true}
		r.Kubernetes.Namespace, r.Kubernetes.IdleStrategy, r.Kubernetes.IdlePauseCount = namespace, strategy, beside
		return r
	}
	resources := map[string][]string{}
	for _, role := range rolesOf(Options{LeaseNamespace: "idlecount", Manager: &Account{}, Config: &config.Config{Runners: []config.Runner{
		runner("pods", config.StrategyPods, 0), runner("beside", config.StrategyPods, 1),
		runner("room", config.StrategyPause, 0), runner("room", config.StrategyPause, 0), runner("buffer", config.StrategyBuffer, 0),
	}}}) {
		if role.object != "capacity" {
			continue
		}
		require.NotContains(t, resources, role.namespace, "asked for twice")
		require.Len(t, slices.Compact(slices.Clone(role.rights)), len(role.rights), "%v", role.rights)
		found := map[string]bool{}
		for _, one := range role.rights {
			found[one.resource] = true
		}
		resources[role.namespace] = slices.Sorted(maps.Keys(found))
	}
	require.Subset(t, resources["room"], []string{"deployments", "resourcequotas"})
	require.NotContains(t, resources["room"], "capacitybuffers")
	require.Subset(t, resources["buffer"], []string{"capacitybuffers", "podtemplates"})
	require.Contains(t, resources, "beside")
	require.NotContains(t, resources, "pods")
}
