package diagnosis

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func starting(change func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "pool-x7k2p"}}
	pod.Spec.NodeName = "node-1"
	pod.Spec.InitContainers = []corev1.Container{
		{Name: "entrypoint", Image: "entrypoint:1"},
		{Name: "db", Image: "postgres:17", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)},
	}
	pod.Spec.Containers = []corev1.Container{{Name: "build", Image: "golang:1.26"}, {Name: "helper", Image: "helper:1"}}
	pod.Status.Phase = corev1.PodPending
	change(pod)
	return pod
}

func waits(name, reason, message string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: name, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}}
	}
}

func TestStartOf(t *testing.T) {
	const (
		fine  = "fine"  // it takes its time
		stuck = "stuck" // it may still come
		final = "final" // the system's fault
		ofJob = "ofJob" // the job's
		gone  = "gone"  // another pod may come up
	)
	for sentence, test := range map[string]struct {
		pod  *corev1.Pod
		want string
		says string
	}{
		"containers are created": {starting(waits("build", "ContainerCreating", "")), fine, ""},
		"no node has room": {starting(func(p *corev1.Pod) {
			p.Spec.NodeName = ""
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/3 nodes are available: 3 Insufficient cpu."}}
		}), stuck, "waiting for a node: Unschedulable: 0/3 nodes are available: 3 Insufficient cpu."},
		"the job's image doesn't exist": {starting(waits("build", "ErrImagePull",
			`rpc error: code = NotFound desc = failed to pull and unpack image "docker.io/library/nope:1": failed to resolve reference "docker.io/library/nope:1": docker.io/library/nope:1: not found`)), ofJob, "image golang:1.26"},
		"the job's image doesn't exist, said in passing": {starting(waits("build", "ImagePullBackOff",
			`Back-off pulling image "nope:1": ErrImagePull: rpc error: code = NotFound desc = nope:1: not found`)), ofJob, "not found"},
		"the job's image needs a login": {starting(waits("build", "ErrImagePull",
			`failed to authorize: failed to fetch oauth token: unexpected status from GET request: 401 Unauthorized`)), ofJob, "401"},
		"docker hub's word for both": {starting(waits("build", "ErrImagePull",
			`pull access denied, repository does not exist or may require authorization: server message: insufficient_scope: authorization failed`)), ofJob, "access denied"},
		"the registry is busy": {starting(waits("build", "ErrImagePull",
			`429 Too Many Requests - toomanyrequests: You have reached your unauthenticated pull rate limit`)), stuck, "toomanyrequests"},
		"the registry is away": {starting(waits("build", "ErrImagePull",
			`failed to do request: Head "https://registry.example.com/v2/x/manifests/1": dial tcp: lookup registry.example.com: no such host`)), stuck, "no such host"},
		"a back-off that doesn't say why":      {starting(waits("build", "ImagePullBackOff", `Back-off pulling image "x"`)), stuck, "image golang:1.26 can't be pulled"},
		"the job's image isn't a name":         {starting(waits("build", "InvalidImageName", "couldn't parse image name")), ofJob, "InvalidImageName"},
		"a service's image doesn't exist":      {starting(waits("db", "ErrImagePull", "postgres:17: not found")), ofJob, "postgres:17"},
		"the helper's image doesn't exist":     {starting(waits("helper", "ErrImagePull", "helper:1: not found")), final, "helper:1"},
		"the entrypoint's image doesn't exist": {starting(waits("entrypoint", "ErrImagePull", "entrypoint:1: not found")), final, "entrypoint:1"},
		"a Secret of the pod isn't there yet":  {starting(waits("db", "CreateContainerConfigError", `secret "pool-x7k2p-db" not found`)), stuck, "secret"},
		"a user that the image can't be": {starting(waits("build", "CreateContainerConfigError",
			"container has runAsNonRoot and image will run as root")), ofJob, "runAsNonRoot"},
		"a service crashes, which the job may notice": {starting(func(p *corev1.Pod) {
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "db", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}}}}
		}), fine, ""},
		"the entrypoint is in place": {starting(func(p *corev1.Pod) {
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "entrypoint", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}}
		}), fine, ""},
		"the entrypoint can't be installed": {starting(func(p *corev1.Pod) {
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "entrypoint", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error"}}}}
		}), final, "exit code 1"},
		"the build container ends at once": {starting(func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodRunning
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "build", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 128, Reason: "StartError", Message: "exec: no such file"}}}}
		}), final, "StartError: exec: no such file"},
		"the node has no room after all": {starting(func(p *corev1.Pod) {
			p.Status.Phase, p.Status.Reason, p.Status.Message = corev1.PodFailed, "OutOfcpu", "Node didn't have enough resource"
		}), gone, "OutOfcpu"},
		"it is preempted": {starting(func(p *corev1.Pod) {
			p.DeletionTimestamp = &metav1.Time{}
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "PreemptionByScheduler", Message: "preempting to accommodate a higher priority pod"}}
		}), gone, "PreemptionByScheduler"},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := StartOf(test.pod)
			require.False(t, s.Ready)
			got := fine
			f, isFinal := s.Final()
			switch {
			case isFinal && f.Gone:
				got = gone
			case isFinal && f.OfJob:
				got = ofJob
			case isFinal:
				got = final
			case s.Stuck() != "":
				got = stuck
			}
			require.Equal(t, test.want, got)
			require.Contains(t, s.Stuck(), test.says)
		})
	}
}

// The kubelet changes between the two reasons, and a connection has another port each time.
func TestAPullThatFailsAgainAndAgainIsOneThing(t *testing.T) {
	const words = `rpc error: code = DeadlineExceeded desc = failed to pull and unpack image "127.0.0.1:1/x:1": failed to resolve reference "127.0.0.1:1/x:1": failed to do request: Head "http://127.0.0.1:1/v2/x/manifests/1": dial tcp 127.0.0.1:1: connect: connection refused`
	first := StartOf(starting(waits("build", "ErrImagePull", words))).Findings
	again := StartOf(starting(waits("build", "ImagePullBackOff", `Back-off pulling image "127.0.0.1:1/x:1": ErrImagePull: `+words))).Findings
	require.Equal(t, first, again)
	require.Equal(t, `container build: image golang:1.26 can't be pulled: Head "http://127.0.0.1:1/v2/x/manifests/1": dial tcp 127.0.0.1:1: connect: connection refused`, first[len(first)-1].Message)
	other := Finding{Topic: "x", Message: "read tcp 10.0.0.1:43242->10.0.0.2:443: reset"}
	require.Equal(t, other.Thing(), Finding{Topic: "x", Message: "read tcp 10.0.0.1:51022->10.0.0.2:443: reset"}.Thing())
	require.NotEqual(t, other.Thing(), Finding{Topic: "y", Message: other.Message}.Thing())
}

func TestAReadyPodHasNoFindings(t *testing.T) {
	s := StartOf(starting(func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}))
	require.Equal(t, Start{Ready: true}, s)
}

func running(change func(*corev1.Pod)) *corev1.Pod {
	return starting(func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodRunning
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "build"}, {Name: "helper"}}
		change(p)
	})
}

func ended(container int, reason string, code int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses[container].State.Terminated = &corev1.ContainerStateTerminated{Reason: reason, ExitCode: code}
	}
}

func TestEndOf(t *testing.T) {
	limit := corev1.ResourceList{corev1.ResourceMemory: mustParse("512Mi")}
	for sentence, test := range map[string]struct {
		pod  *corev1.Pod
		says string // "" = it goes on
		gone bool
	}{
		"it runs":                       {running(func(*corev1.Pod) {}), "", false},
		"the other container has ended": {running(ended(1, "Error", 1)), "", false},
		"out of memory, with a limit":   {running(func(p *corev1.Pod) { ended(0, "OOMKilled", 137)(p); p.Spec.Containers[0].Resources.Limits = limit }), "used more memory than it may (its limit is 512Mi)", true},
		"given up by its PID 1":         {running(ended(0, "Error", 12)), "no driver was attached", true},
		"stopped by a signal":           {running(ended(0, "Error", 143)), "was told to stop, by its node or by a script (`kill 1`)", true},
		"PID 1 was killed":              {running(ended(0, "Error", 137)), "ended with exit code 137", true},
		"evicted by its node": {running(func(p *corev1.Pod) {
			p.Status.Phase, p.Status.Reason, p.Status.Message = corev1.PodFailed, "Evicted", "The node was low on resource: memory."
		}), "Evicted: The node was low on resource: memory.", true},
		"over its deadline": {running(func(p *corev1.Pod) {
			p.Status.Phase, p.Status.Reason, p.Spec.ActiveDeadlineSeconds = corev1.PodFailed, "DeadlineExceeded", new(int64(3960))
		}), "longer than the 1h6m0s that the job's timeout allows", true},
		"deleted by a person":                   {running(func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }), "was deleted by somebody", false},
		"deleted by a person, containers ended": {running(func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{}; ended(0, "Error", 143)(p) }), "was deleted by somebody", true},
		"evicted by the API, still running": {running(func(p *corev1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting"})
		}), "is being ended: EvictionByEvictionAPI", false},
	} {
		t.Run(sentence, func(t *testing.T) {
			end, over := EndOf(test.pod, "build")
			require.Equal(t, test.says != "", over)
			require.Contains(t, end.Reason, test.says)
			require.Equal(t, test.gone, end.Gone)
			if over {
				require.Contains(t, end.Reason, "ci/pool-x7k2p")
			}
		})
	}
}

func TestGraceOfAPodThatEnds(t *testing.T) {
	pod := running(func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} })
	end, _ := EndOf(pod, "build")
	require.Equal(t, 30*time.Second, end.Grace)
	pod.DeletionGracePeriodSeconds = new(int64(5))
	end, _ = EndOf(pod, "build")
	require.Equal(t, 5*time.Second, end.Grace)
}

func TestGoneOf(t *testing.T) {
	end := GoneOf("ci", "p", nil, "build")
	require.True(t, end.Gone)
	require.Contains(t, end.Reason, "pod ci/p is gone")
	end = GoneOf("ci", "p", running(func(p *corev1.Pod) {
		p.DeletionTimestamp = &metav1.Time{}
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "DeletionByTaintManager"})
	}), "build")
	require.True(t, end.Gone)
	require.Contains(t, end.Reason, "DeletionByTaintManager", "the reason that was seen last is the one that is told")
}

// Whoever refuses or ends a pod gives a reason; without one it was the pod's own doing, and the next would do the same.
func TestAPodThatCrashedIsNotMadeAgain(t *testing.T) {
	for reason, crashed := range map[string]bool{"": true, "OutOfcpu": false, "Evicted": false, "UnexpectedAdmissionError": false} {
		f, ok := StartOf(&corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: reason}}).Final()
		require.True(t, ok)
		require.True(t, f.Gone)
		require.Equal(t, crashed, f.Crashed, reason)
	}
	f, ok := StartOf(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{}}}).Final()
	require.True(t, ok)
	require.False(t, f.Crashed)
}
