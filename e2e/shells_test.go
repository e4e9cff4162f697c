package e2e_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"idlecount.dev/idlecount/e2e/images"
	"idlecount.dev/idlecount/e2e/runner"
	"idlecount.dev/idlecount/factory"
)

// The same job, in images that have little in common.
func TestJobsRunInAnyImageWithAShell(t *testing.T) {
	t.Parallel()
	s := newSite(t, settings{"idle_count": 1, "idle_images": []images.Name{images.JobBusybox, images.JobBash, images.JobNonRoot, images.JobEntrypoint, images.JobBare}})
	s.startManager()
	s.untilIdle(5)
	for image, who := range map[images.Name]string{
		images.JobBusybox: "0", images.JobBash: "0", images.JobNonRoot: "1000", images.JobEntrypoint: "0", images.JobBare: "0",
	} {
		t.Run(string(image), func(t *testing.T) {
			s := s.with(t)
			job := runner.Job{Image: s.ref(image),
				Variables:   []runner.Variable{{Key: "F", Value: "in a file", File: true}},
				Script:      []string{`echo "user $(id -u)"`, "cat $F; echo", "echo made > made; mkdir -p a/b", "exit 6"},
				AfterScript: []string{`echo "after $CI_JOB_STATUS $(cat made)"`}}
			result := s.run(job)
			require.Contains(t, string(result.Output("prepare")), "idle for", "it was warm")
			require.Contains(t, string(result.Output("build_script")), "\nuser "+who+"\n")
			require.Contains(t, string(result.Output("build_script")), "\nin a file\n")
			require.Contains(t, string(result.Output("after_script")), "\nafter failed made\n")
			require.Equal(t, 6, result.ExitCode)
		})
	}
}

func TestAJobInAReadOnlyRootFilesystem(t *testing.T) {
	t.Parallel()
	s := newSite(t, settings{"idle_count": 1, "build_container_security_context": settings{"read_only_root_filesystem": true}})
	s.startManager()
	s.untilIdle(1)
	result := s.run(runner.Job{Script: []string{"touch /x 2>&1 || true", "touch here && echo written"}})
	require.Equal(t, runner.Success, result.Status)
	require.Contains(t, string(result.Output("build_script")), "Read-only file system")
	require.Contains(t, string(result.Output("build_script")), "\nwritten\n")
}

func TestAJobWithAUserOfItsOwnInDotGitLabCI(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	result := s.run(runner.Job{User: "1000", Script: []string{`echo "user $(id -u)"`, "touch here"}})
	require.Equal(t, runner.Success, result.Status)
	require.Contains(t, string(result.Output("build_script")), "\nuser 1000\n")
}

func TestServicesAnswerByTheirNames(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	result := s.run(runner.Job{
		Services: []runner.Service{{Name: s.ref(images.Service), Alias: "web page"}},
		// GitLab waits for no service either: a job that needs one waits for it.
		Script: []string{`for name in web page; do until wget -q -O - http://$name:8080/; do sleep 0.2; done; done`},
	})
	require.Equal(t, runner.Success, result.Status)
	require.Contains(t, string(result.Output("build_script")), "hello from the service\nhello from the service\n")
}

// A shared cluster enforces Pod Security: idle pods and job pods have to be admitted, and then to run.
func TestPodsRunUnderPodSecurity(t *testing.T) {
	t.Parallel()
	restricted := settings{"allow_privilege_escalation": false, "cap_drop": []string{"ALL"},
		"pod_security_context": settings{"run_as_non_root": true, "run_as_user": 1000, "seccomp_profile": settings{"type": "RuntimeDefault"}}}
	for level, keys := range map[string]settings{"baseline": {}, "restricted": restricted} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, nil)
			namespace, err := s.client.CoreV1().Namespaces().Get(t.Context(), s.namespace, metav1.GetOptions{})
			require.NoError(t, err)
			namespace.Labels["pod-security.kubernetes.io/enforce"] = level
			_, err = s.client.CoreV1().Namespaces().Update(t.Context(), namespace, metav1.UpdateOptions{})
			require.NoError(t, err)
			keys["idle_count"] = 1
			s.configure(keys)
			s.startManager()
			s.untilIdle(1)

			warm := s.run(runner.Job{Script: []string{`echo "user $(id -u)"`, "touch here && echo written"}})
			require.Equal(t, runner.Success, warm.Status)
			require.Contains(t, string(warm.Output("prepare")), "idle for")
			require.Contains(t, string(warm.Output("build_script")), "\nwritten\n")
			cold := s.run(runner.Job{Image: s.ref(images.JobBusybox), Script: []string{"touch here && echo written"},
				Services: []runner.Service{{Name: s.ref(images.Service)}}})
			require.Equal(t, runner.Success, cold.Status)
			require.Contains(t, string(cold.Output("build_script")), "\nwritten\n")

			list, err := s.client.CoreV1().Pods(s.namespace).List(t.Context(), metav1.ListOptions{})
			require.NoError(t, err)
			for _, pod := range list.Items {
				require.NotEqual(t, factory.Failed, factory.PhaseOf(&pod))
				require.Equal(t, new(false), pod.Spec.AutomountServiceAccountToken)
				require.Empty(t, hostThings(pod))
			}
		})
	}
}

// hostThings are the parts of a pod that reach out of it.
func hostThings(pod corev1.Pod) []string {
	var all []string
	if pod.Spec.HostNetwork || pod.Spec.HostPID || pod.Spec.HostIPC {
		all = append(all, "a host namespace")
	}
	for _, v := range pod.Spec.Volumes {
		if v.HostPath != nil {
			all = append(all, "hostPath "+v.HostPath.Path)
		}
	}
	return all
}
