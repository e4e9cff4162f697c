// Package patch applies [[runners.kubernetes.pod_spec]] to a pod, as GitLab's executor does. It is pure. The driver must not
// import it: what it takes to patch a pod makes a program slow to start.
package patch

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"

	"idlecount.dev/idlecount/config"
)

// Apply applies one patch to the spec of a pod.
func Apply(p config.PodSpec, spec *corev1.PodSpec) error {
	after, err := patched(p, *spec)
	if err != nil {
		return err
	}
	var result corev1.PodSpec
	if err := json.Unmarshal(after, &result); err != nil {
		return fmt.Errorf("makes no pod of the pod of a job: %w", err)
	}
	*spec = result
	return nil
}

// Unknown says which field a patch that can be applied sets and no pod has, so that it does nothing.
func Unknown(p config.PodSpec, spec corev1.PodSpec) error {
	after, err := patched(p, spec)
	if err != nil {
		return err
	}
	strict := json.NewDecoder(bytes.NewReader(after))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&corev1.PodSpec{}); err != nil {
		return fmt.Errorf("sets what no pod has: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// patched is what a patch makes of the spec of a pod, as JSON.
func patched(p config.PodSpec, spec corev1.PodSpec) ([]byte, error) {
	change, err := yaml.YAMLToJSON([]byte(p.Patch))
	if err != nil {
		return nil, fmt.Errorf("is neither YAML nor JSON: %w", err)
	}
	before, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	var after []byte
	switch p.PatchType {
	case "merge":
		after, err = jsonpatch.MergePatch(before, change)
	case "json":
		var operations jsonpatch.Patch
		if operations, err = jsonpatch.DecodePatch(change); err == nil {
			after, err = operations.Apply(before)
		}
	default:
		after, err = strategicpatch.StrategicMergePatch(before, change, corev1.PodSpec{})
	}
	if err != nil {
		return nil, fmt.Errorf("can't be applied to the pod of a job: %w", err)
	}
	return after, nil
}
