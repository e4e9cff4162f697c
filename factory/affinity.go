package factory

import (
	"encoding/json"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"idlecount.dev/idlecount/config"
)

// affinityText is an affinity as a shape has it.
func affinityText(c config.Affinity) string {
	a := affinity(c)
	if a == nil {
		return ""
	}
	b, _ := json.Marshal(a) //nolint:errchkjson // an affinity can't fail
	return string(b)
}

// parseAffinity reads what affinityText has written.
func parseAffinity(text string) *corev1.Affinity {
	if text == "" {
		return nil
	}
	a := &corev1.Affinity{}
	if json.Unmarshal([]byte(text), a) != nil {
		return nil // no text of ours
	}
	return a
}

// affinity is [runners.kubernetes.affinity] as a pod has it; nil where it says nothing, as in the files that
// `gitlab-runner register` writes.
func affinity(c config.Affinity) *corev1.Affinity {
	a := &corev1.Affinity{
		NodeAffinity: nodeAffinity(c.NodeAffinity),
		PodAffinity:  podAffinity(c.PodAffinity),
	}
	if anti := podAffinity(c.PodAntiAffinity); anti != nil {
		a.PodAntiAffinity = &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution:  anti.RequiredDuringSchedulingIgnoredDuringExecution,
			PreferredDuringSchedulingIgnoredDuringExecution: anti.PreferredDuringSchedulingIgnoredDuringExecution,
		}
	}
	if a.NodeAffinity == nil && a.PodAffinity == nil && a.PodAntiAffinity == nil {
		return nil
	}
	return a
}

func nodeAffinity(c config.NodeAffinity) *corev1.NodeAffinity {
	if len(c.Required.Terms)+len(c.Preferred) == 0 {
		return nil
	}
	a := &corev1.NodeAffinity{}
	if len(c.Required.Terms) > 0 {
		a.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{}
		for _, term := range c.Required.Terms {
			a.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms = append(
				a.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms, nodeTerm(term))
		}
	}
	for _, wish := range c.Preferred {
		a.PreferredDuringSchedulingIgnoredDuringExecution = append(a.PreferredDuringSchedulingIgnoredDuringExecution,
			corev1.PreferredSchedulingTerm{Weight: weight(wish.Weight), Preference: nodeTerm(wish.Preference)})
	}
	return a
}

func nodeTerm(c config.NodeSelectorTerm) corev1.NodeSelectorTerm {
	requirements := func(list []config.Expression) []corev1.NodeSelectorRequirement {
		var all []corev1.NodeSelectorRequirement
		for _, e := range list {
			all = append(all, corev1.NodeSelectorRequirement{
				Key: e.Key, Operator: corev1.NodeSelectorOperator(e.Operator), Values: slices.Clone(e.Values),
			})
		}
		return all
	}
	return corev1.NodeSelectorTerm{MatchExpressions: requirements(c.MatchExpressions), MatchFields: requirements(c.MatchFields)}
}

func podAffinity(c config.PodAffinity) *corev1.PodAffinity {
	if len(c.Required)+len(c.Preferred) == 0 {
		return nil
	}
	a := &corev1.PodAffinity{}
	for _, term := range c.Required {
		a.RequiredDuringSchedulingIgnoredDuringExecution = append(a.RequiredDuringSchedulingIgnoredDuringExecution, podTerm(term))
	}
	for _, wish := range c.Preferred {
		a.PreferredDuringSchedulingIgnoredDuringExecution = append(a.PreferredDuringSchedulingIgnoredDuringExecution,
			corev1.WeightedPodAffinityTerm{Weight: weight(wish.Weight), PodAffinityTerm: podTerm(wish.PodAffinityTerm)})
	}
	return a
}

func podTerm(c config.PodAffinityTerm) corev1.PodAffinityTerm {
	return corev1.PodAffinityTerm{
		LabelSelector: labelSelector(c.LabelSelector), NamespaceSelector: labelSelector(c.NamespaceSelector),
		Namespaces: slices.Clone(c.Namespaces), TopologyKey: c.TopologyKey,
		MatchLabelKeys: slices.Clone(c.MatchLabelKeys), MismatchLabelKeys: slices.Clone(c.MismatchLabelKeys),
	}
}

func labelSelector(c *config.LabelSelector) *metav1.LabelSelector {
	if c == nil {
		return nil
	}
	s := &metav1.LabelSelector{MatchLabels: maps.Clone(c.MatchLabels)}
	for _, e := range c.MatchExpressions {
		s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: e.Key, Operator: metav1.LabelSelectorOperator(e.Operator), Values: slices.Clone(e.Values),
		})
	}
	return s
}

// weight is from 1 to 100: config has seen to it.
func weight(n int) int32 { return int32(min(max(n, 1), 100)) } //nolint:gosec // bounded
