package capacity

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"idlecount.dev/idlecount/capacity/patch"
	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/factory"
)

// Judge is a config.Judge: it finds patches that can't be applied, which would leave the runner without room for its jobs, and
// those that probably don't do what is meant.
func Judge(r config.Runner) (wrong, warnings []config.Finding) {
	if !r.KeepsCapacity() {
		return nil, nil
	}
	for _, image := range r.CapacityImages() {
		i := 0
		apply := func(p config.PodSpec, spec *corev1.PodSpec) error {
			before := *spec
			err := patch.Apply(p, spec)
			if err == nil {
				for _, message := range doubts(p, before, *spec) {
					warnings = append(warnings, config.Finding{Key: fmt.Sprintf("kubernetes.pod_spec[%d].patch", i), Message: message})
				}
			}
			i++
			return err
		}
		_, err := factory.CapacityOf(r, image, nil, apply)
		if e, ok := errors.AsType[*factory.PatchError](err); ok {
			wrong = append(wrong, config.Finding{Key: e.Key, Message: e.Err.Error()})
		} else if err != nil {
			wrong = append(wrong, config.Finding{Key: "kubernetes", Message: "no room can be kept for its jobs: " + err.Error()})
		}
	}
	return wrong, warnings
}

// doubts are what a patch sets that nobody reads, or that makes a pod which the API server would refuse.
func doubts(p config.PodSpec, before, after corev1.PodSpec) []string {
	var list []string
	if err := patch.Unknown(p, before); err != nil {
		list = append(list, err.Error())
	}
	for _, c := range after.Containers {
		is := func(other corev1.Container) bool { return other.Name == c.Name }
		if c.Image == "" && !slices.ContainsFunc(before.Containers, is) {
			var names []string
			for _, known := range before.Containers {
				names = append(names, known.Name)
			}
			list = append(list, fmt.Sprintf("makes a container %q without an image: those of a job are %s", c.Name, strings.Join(names, ", ")))
		}
	}
	return list
}
