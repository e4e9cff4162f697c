package factory

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// reference is an image reference in parts: [registry[:port]/]path[:tag][@digest].
type reference struct {
	name   string // registry and path
	tag    string
	digest string
}

func parseReference(image string) reference {
	var ref reference
	ref.name, ref.digest, _ = strings.Cut(image, "@")
	// A colon before the last slash is a registry's port.
	if colon := strings.LastIndex(ref.name, ":"); colon > strings.LastIndex(ref.name, "/") {
		ref.name, ref.tag = ref.name[:colon], ref.name[colon+1:]
	}
	return ref
}

// pullPolicies are GitLab's words for Kubernetes' (GitLab Runner: pull_policy).
func pullPolicies(words []string) ([]corev1.PullPolicy, error) {
	var policies []corev1.PullPolicy
	for _, word := range words {
		switch word {
		case "always":
			policies = append(policies, corev1.PullAlways)
		case "if-not-present":
			policies = append(policies, corev1.PullIfNotPresent)
		case "never":
			policies = append(policies, corev1.PullNever)
		default:
			return nil, fmt.Errorf("unknown pull policy %q; use always, if-not-present or never", word)
		}
	}
	return policies, nil
}

// pullPolicy is the policy that is in force for an image: the first of the job's that the runner allows, else the
// runner's first, else the default that the API server would fill in. GitLab allows a job what pull_policy lists, unless
// allowed_pull_policies says otherwise. Where nothing is listed a job may still ask for more pulling than the default,
// never for less: an image that another job's credentials have pulled must not be had without any.
func pullPolicy(image string, runner []corev1.PullPolicy, job []string) (corev1.PullPolicy, error) {
	wanted, err := pullPolicies(job)
	if err != nil {
		return "", &JobError{Field: "pull_policy", Message: err.Error()}
	}
	allowed := runner
	if len(allowed) == 0 {
		allowed = []corev1.PullPolicy{defaultPullPolicy(image), corev1.PullAlways}
	}
	if len(wanted) == 0 {
		return allowed[0], nil
	}
	for _, policy := range wanted {
		if slices.Contains(allowed, policy) {
			return policy, nil
		}
	}
	return "", &JobError{
		Field:   "pull_policy",
		Message: fmt.Sprintf("the job asks for %v, the runner allows %v for %s", wanted, slices.Compact(allowed), image),
	}
}

// defaultPullPolicy is the Kubernetes API's own default.
func defaultPullPolicy(image string) corev1.PullPolicy {
	if ref := parseReference(image); ref.tag == "latest" || ref.tag == "" && ref.digest == "" {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}
