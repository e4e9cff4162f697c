package config

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Affinity is [runners.kubernetes.affinity], with the keys that GitLab's executor knows.
type Affinity struct {
	NodeAffinity    NodeAffinity `toml:"node_affinity"`
	PodAffinity     PodAffinity  `toml:"pod_affinity"`
	PodAntiAffinity PodAffinity  `toml:"pod_anti_affinity"`
}

// NodeAffinity is [runners.kubernetes.affinity.node_affinity].
type NodeAffinity struct {
	Required  NodeSelector      `toml:"required_during_scheduling_ignored_during_execution"`
	Preferred []PreferredOfNode `toml:"preferred_during_scheduling_ignored_during_execution"`
}

// NodeSelector is what nodes must match: any of its terms.
type NodeSelector struct {
	Terms []NodeSelectorTerm `toml:"node_selector_terms"`
}

// NodeSelectorTerm is matched by nodes that match all of its expressions.
type NodeSelectorTerm struct {
	MatchExpressions []Expression `toml:"match_expressions"`
	MatchFields      []Expression `toml:"match_fields"`
}

// Expression compares a label, or a field.
type Expression struct {
	Key      string   `toml:"key"`
	Operator string   `toml:"operator"`
	Values   []string `toml:"values"`
}

// PreferredOfNode is a wish for nodes.
type PreferredOfNode struct {
	Weight     int              `toml:"weight"` // 1 to 100
	Preference NodeSelectorTerm `toml:"preference"`
}

// PodAffinity is [runners.kubernetes.affinity.pod_affinity] or pod_anti_affinity.
type PodAffinity struct {
	Required  []PodAffinityTerm `toml:"required_during_scheduling_ignored_during_execution"`
	Preferred []PreferredOfPod  `toml:"preferred_during_scheduling_ignored_during_execution"`
}

// PodAffinityTerm names pods, and how far from them is near.
type PodAffinityTerm struct {
	LabelSelector     *LabelSelector `toml:"label_selector"`
	Namespaces        []string       `toml:"namespaces"`
	TopologyKey       string         `toml:"topology_key"`
	NamespaceSelector *LabelSelector `toml:"namespace_selector"`
	MatchLabelKeys    []string       `toml:"match_label_keys"`
	MismatchLabelKeys []string       `toml:"mismatch_label_keys"`
}

// PreferredOfPod is a wish to be near pods, or far from them.
type PreferredOfPod struct {
	Weight          int             `toml:"weight"` // 1 to 100
	PodAffinityTerm PodAffinityTerm `toml:"pod_affinity_term"`
}

// LabelSelector is a selector of labels; an empty one selects all, one that isn't there none.
type LabelSelector struct {
	MatchLabels      map[string]string `toml:"match_labels"`
	MatchExpressions []Expression      `toml:"match_expressions"`
}

const (
	required  = ".required_during_scheduling_ignored_during_execution"
	preferred = ".preferred_during_scheduling_ignored_during_execution"
)

// affinity checks what the API server would refuse of an affinity: a pod that can't be made is found out too late else.
func (c *checker) affinity() {
	const at = "kubernetes.affinity"
	a := c.runner.Kubernetes.Affinity
	for i, term := range a.NodeAffinity.Required.Terms {
		c.nodeTerm(fmt.Sprintf("%s.node_affinity%s.node_selector_terms[%d]", at, required, i), term)
	}
	for i, wish := range a.NodeAffinity.Preferred {
		path := fmt.Sprintf("%s.node_affinity%s[%d]", at, preferred, i)
		c.weight(path, wish.Weight)
		c.nodeTerm(path+".preference", wish.Preference)
	}
	for _, p := range []struct {
		name     string
		affinity PodAffinity
	}{{"pod_affinity", a.PodAffinity}, {"pod_anti_affinity", a.PodAntiAffinity}} {
		for i, term := range p.affinity.Required {
			c.podTerm(fmt.Sprintf("%s.%s%s[%d]", at, p.name, required, i), term)
		}
		for i, wish := range p.affinity.Preferred {
			path := fmt.Sprintf("%s.%s%s[%d]", at, p.name, preferred, i)
			c.weight(path, wish.Weight)
			c.podTerm(path+".pod_affinity_term", wish.PodAffinityTerm)
		}
	}
}

func (c *checker) weight(path string, weight int) {
	if weight < 1 || weight > 100 {
		c.wrong(path+".weight", "%d is not a weight from 1 to 100", weight)
	}
}

func (c *checker) nodeTerm(path string, term NodeSelectorTerm) {
	const operators = "In, NotIn, Exists, DoesNotExist, Gt or Lt"
	c.expressions(path+".match_expressions", term.MatchExpressions, operators, "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
	c.expressions(path+".match_fields", term.MatchFields, "In or NotIn", "In", "NotIn")
}

func (c *checker) podTerm(path string, term PodAffinityTerm) {
	if term.TopologyKey == "" {
		c.wrong(path+".topology_key", `is missing: it is the node label that says what is near, e.g. "kubernetes.io/hostname"`)
	}
	for _, s := range []struct {
		key      string
		selector *LabelSelector
	}{{"label_selector", term.LabelSelector}, {"namespace_selector", term.NamespaceSelector}} {
		if s.selector == nil {
			continue
		}
		at := path + "." + s.key
		for _, key := range sortedKeys(s.selector.MatchLabels) {
			c.named(at+".match_labels."+quoteKey(key), key, validation.IsQualifiedName)
			c.named(at+".match_labels."+quoteKey(key), s.selector.MatchLabels[key], validation.IsValidLabelValue)
		}
		c.expressions(at+".match_expressions", s.selector.MatchExpressions, "In, NotIn, Exists or DoesNotExist", "In", "NotIn", "Exists", "DoesNotExist")
	}
}

func (c *checker) expressions(path string, list []Expression, words string, operators ...string) {
	for i, e := range list {
		at := fmt.Sprintf("%s[%d]", path, i)
		hasValues := len(e.Values) > 0
		switch {
		case e.Key == "":
			c.wrong(at+".key", "is missing")
		case !slices.Contains(operators, e.Operator):
			c.wrong(at+".operator", "%q is not an operator here: use %s", e.Operator, words)
		case (e.Operator == "In" || e.Operator == "NotIn") && !hasValues:
			c.wrong(at+".values", "is empty, but %s compares with values", e.Operator)
		case (e.Operator == "Exists" || e.Operator == "DoesNotExist") && hasValues:
			c.wrong(at+".values", "must be empty with %s", e.Operator)
		case (e.Operator == "Gt" || e.Operator == "Lt") && len(e.Values) != 1:
			c.wrong(at+".values", "must be one number with %s", e.Operator)
		}
	}
}
