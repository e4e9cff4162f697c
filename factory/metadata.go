package factory

import (
	"fmt"
	"maps"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"idlecount.dev/idlecount/config"
)

// gitLabDomain ends the prefixes of the labels and annotations that GitLab's kubernetes executor sets.
const gitLabDomain = "runner.gitlab.com"

// metadata takes over pod_labels and pod_annotations, raw and without the keys that aren't the user's to set.
func (b shapeBuilder) metadata(s *Shape, _ config.Runner, _ Job) error {
	s.Labels, s.Annotations = userLabels(b.k), userAnnotations(b.k)
	for key := range s.Labels {
		if err := validKey(b.path+".pod_labels", key, key); err != nil {
			return err
		}
	}
	for key := range s.Annotations {
		// The API server takes annotations' keys in any case of letters.
		if err := validKey(b.path+".pod_annotations", key, strings.ToLower(key)); err != nil {
			return err
		}
	}
	return nil
}

func validKey(path, written, key string) error {
	if problems := validation.IsQualifiedName(key); len(problems) > 0 {
		return fmt.Errorf("%s: %q can't be a key: %s", path, written, strings.Join(problems, ", "))
	}
	return nil
}

// userLabels are the pod_labels that may be set. GitLab drops those of its own domain, in any case of letters.
func userLabels(k *config.Kubernetes) map[string]string {
	return without(k.PodLabels, func(key string) bool {
		prefix, _, _ := strings.Cut(strings.ToLower(key), "/")
		return prefix == gitLabDomain || strings.HasSuffix(prefix, "."+gitLabDomain) || strings.HasPrefix(key, Prefix)
	})
}

// userAnnotations are the pod_annotations that may be set. The two for autoscalers are ours: what they have to say changes
// with the claim.
func userAnnotations(k *config.Kubernetes) map[string]string {
	return without(k.PodAnnotations, func(key string) bool {
		return key == AnnotationSafeToEvict || key == AnnotationDoNotDisrupt || strings.HasPrefix(key, Prefix)
	})
}

func without(m map[string]string, reserved func(key string) bool) map[string]string {
	kept := maps.Clone(m)
	maps.DeleteFunc(kept, func(key, _ string) bool { return reserved(key) })
	return kept
}

// ofJob says whether a value can only be known together with the job.
func ofJob(value string) bool { return strings.Contains(value, "$") }

// expand puts a job's variables into a value: $NAME, ${NAME}, and $$ for a dollar sign.
func expand(value string, variables map[string]string) string {
	return os.Expand(value, func(name string) string {
		if name == "$" {
			return name
		}
		return variables[name]
	})
}

// label sets a label that has a value, made valid.
func (m Metadata) label(key, value string) {
	if value = labelValue(value); value != "" {
		m.Labels[key] = value
	}
}

// annotate sets an annotation that has a value.
func (m Metadata) annotate(key, value string) {
	if value != "" {
		m.Annotations[key] = value
	}
}

// over sets m's keys on labels and annotations that are there.
func (m Metadata) over(labels, annotations map[string]string) {
	maps.Copy(labels, m.Labels)
	maps.Copy(annotations, m.Annotations)
}
