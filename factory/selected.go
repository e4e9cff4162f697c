package factory

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"idlecount.dev/idlecount/config"
)

// pauseValue is the value, on a pause pod, of a label that each job has with a value of its own.
const pauseValue = "pause"

// selectedOfJob are the labels of a job's pod whose values are known with the job only, and by whose presence the job's own
// rules choose pods: "no two jobs on one node". Pause pods have them too, or several would share what one job has for itself.
func selectedOfJob(r config.Runner, job corev1.PodSpec) []string {
	var keys []string
	for _, key := range selectedKeys(job) {
		if slices.Contains(labelsOfJob(), key) || ofJob(userLabels(&r.Kubernetes)[key]) {
			keys = append(keys, key)
		}
	}
	return keys
}

// labelsOfJob are the labels of GitLab's executor whose values differ from job to job.
func labelsOfJob() []string {
	return []string{
		LabelGitLabPod, LabelGitLabJobPod, LabelGitLabProject, LabelGitLabProjectName, LabelGitLabNamespace, LabelGitLabNamespaceID,
		LabelGitLabRootNamespace, LabelGitLabRootNamespaceID,
	}
}

// selectedKeys are the labels by whose presence, whatever their value, a pod's affinities and its topology spread choose other
// pods.
func selectedKeys(spec corev1.PodSpec) []string {
	var keys []string
	of := func(s *metav1.LabelSelector) {
		if s == nil {
			return
		}
		for _, e := range s.MatchExpressions {
			// A rule against pods that lack it ("no other pods here") must not find pause pods either.
			if e.Operator == metav1.LabelSelectorOpExists || e.Operator == metav1.LabelSelectorOpDoesNotExist {
				keys = append(keys, e.Key)
			}
		}
	}
	terms := func(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) {
		for _, term := range required {
			of(term.LabelSelector)
		}
		for _, term := range preferred {
			of(term.PodAffinityTerm.LabelSelector)
		}
	}
	if a := spec.Affinity; a != nil && a.PodAffinity != nil {
		terms(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution, a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if a := spec.Affinity; a != nil && a.PodAntiAffinity != nil {
		terms(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	for _, c := range spec.TopologySpreadConstraints {
		of(c.LabelSelector)
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}
