package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// FlagPodSpec is the feature flag without which GitLab Runner applies no [[runners.kubernetes.pod_spec]].
const FlagPodSpec = "FF_USE_ADVANCED_POD_SPEC_CONFIGURATION"

// FollowsPodSpec says whether the pods of the runner's jobs are patched by [[runners.kubernetes.pod_spec]], and so room for
// them: where GitLab Runner's own executor makes them, and the flag is on. As there [runners.feature_flags] comes before
// environment. A job may set the flag for itself, which nobody knows beforehand.
func (r Runner) FollowsPodSpec() bool {
	if r.Executor != executorKubernetes {
		return false
	}
	if on := r.FeatureFlags.AdvancedPodSpec; on != nil {
		return *on
	}
	on := false
	for _, variable := range r.Environment {
		if name, value, _ := strings.Cut(variable, "="); name == FlagPodSpec {
			on, _ = strconv.ParseBool(value) // what is no bool is off
		}
	}
	return on
}

// patches checks what is said of patches of a job's pod.
func (c *checker) patches() {
	r := c.runner
	list := r.Kubernetes.PodSpec
	if len(list) == 0 {
		return
	}
	follows := r.FollowsPodSpec()
	switch {
	case r.Executor != executorKubernetes:
		c.warn("kubernetes.pod_spec", "is set and not honoured: it is for the pods of GitLab Runner's kubernetes executor; neither those that "+
			"idlecount makes nor room for jobs follow it")
	case !follows:
		c.warn("kubernetes.pod_spec", "is applied neither to the pods of jobs nor to room for them: GitLab Runner does that only with a feature flag; "+
			"set %s = true in [runners.feature_flags]", FlagPodSpec)
	case !r.KeepsCapacity():
		c.warn("kubernetes.pod_spec", "is followed by room for jobs only, and none is kept: idle pods don't")
	}
	for i, p := range list {
		if p.PatchPath != "" && follows && r.KeepsCapacity() {
			c.wrong(fmt.Sprintf("kubernetes.pod_spec[%d].patch_path", i), "names a file of GitLab Runner's that the manager doesn't have: write its content into patch")
		}
		if !slices.Contains([]string{"", "strategic", "merge", "json"}, p.PatchType) {
			c.wrong(fmt.Sprintf("kubernetes.pod_spec[%d].patch_type", i), "%q is not known: use strategic, merge or json", p.PatchType)
		}
	}
}
