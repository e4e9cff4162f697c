package factory

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/config"
)

func TestAPausePodHasTheLabelsThatAJobsRulesLookFor(t *testing.T) {
	rule := func(key, operator string, values ...string) config.PodAffinityTerm {
		return config.PodAffinityTerm{TopologyKey: "kubernetes.io/hostname", LabelSelector: &config.LabelSelector{
			MatchExpressions: []config.Expression{{Key: key, Operator: operator, Values: values}},
		}}
	}
	anti := func(rules ...config.PodAffinityTerm) config.Affinity {
		return config.Affinity{PodAntiAffinity: config.PodAffinity{Required: rules}}
	}
	for sentence, c := range map[string]struct {
		affinity config.Affinity
		patch    string
		has      []string // labels that are there for the rule's sake
	}{
		"no rule":                                 {},
		"one job per node":                        {affinity: anti(rule(LabelGitLabJobPod, "Exists")), has: []string{LabelGitLabJobPod}},
		"no pods here but jobs":                   {affinity: anti(rule(LabelGitLabProject, "DoesNotExist")), has: []string{LabelGitLabProject}},
		"a pod label with a variable":             {affinity: anti(rule("project", "Exists")), has: []string{"project"}},
		"one project is not known before its job": {affinity: anti(rule(LabelGitLabProject, "In", "42"))},
		"nor is what none of the jobs' pods have": {affinity: anti(rule("app", "Exists"))},
		"a wish, and a wish to be near": {
			affinity: config.Affinity{
				PodAffinity:     config.PodAffinity{Preferred: []config.PreferredOfPod{{PodAffinityTerm: rule(LabelGitLabPod, "Exists")}}},
				PodAntiAffinity: config.PodAffinity{Preferred: []config.PreferredOfPod{{PodAffinityTerm: rule(LabelGitLabNamespace, "Exists")}}},
			},
			has: []string{LabelGitLabPod, LabelGitLabNamespace},
		},
		"a patch": {
			patch: `topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule,
				labelSelector: {matchExpressions: [{key: job.runner.gitlab.com/pod, operator: Exists}]}}]`,
			has: []string{LabelGitLabJobPod},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			r := load(t, "pause")
			r.Kubernetes.Affinity, r.Kubernetes.PodSpec = c.affinity, nil
			if c.patch != "" {
				r.Kubernetes.PodSpec = []config.PodSpec{{Patch: c.patch}}
			}
			labels := capacityOf(t, r, "").Template.Labels
			require.Equal(t, "pause", labels[LabelGitLabManager], "the name of the runner, which all of its jobs have")
			require.Equal(t, r.ShortToken(), labels[LabelGitLabManagerID])
			require.Equal(t, "platform", labels["team"])
			for _, key := range []string{LabelRunner, LabelCapacity, LabelGitLabManager, LabelGitLabManagerID, "team"} {
				delete(labels, key)
			}
			require.ElementsMatch(t, c.has, slices.Collect(maps.Keys(labels)))
		})
	}
}

// TestEveryLabelOfAJobIsKnown to be either the runner's or one job's.
func TestEveryLabelOfAJobIsKnown(t *testing.T) {
	job := JobMeta{
		ID: "1", ConcurrentID: "0", ProjectID: "2", ProjectName: "p", Namespace: "n", NamespaceID: "3", RootNamespace: "r", RootNamespaceID: "4",
	}
	r := load(t, "pause")
	known := append(labelsOfJob(), LabelGitLabManager, LabelGitLabManagerID)
	m := Metadata{Labels: map[string]string{}, Annotations: map[string]string{}}
	m.gitLab(r, job)
	require.ElementsMatch(t, known, slices.Collect(maps.Keys(m.Labels)))
}
