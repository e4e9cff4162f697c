package factory

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"idlecount.dev/idlecount/config"
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

// pulling is what the configuration says of pulling images.
type pulling struct {
	path       string              // of the table, for errors
	configured []corev1.PullPolicy // pull_policy
	allowed    []corev1.PullPolicy // allowed_pull_policies
}

// pullingOf reads both keys.
func pullingOf(path string, k *config.Kubernetes) (p pulling, err error) {
	p.path = path
	if p.configured, err = pullPolicies(k.PullPolicy); err != nil {
		return pulling{}, fmt.Errorf("%s.pull_policy: %w", path, err)
	}
	if p.allowed, err = pullPolicies(k.AllowedPullPolicies); err != nil {
		return pulling{}, fmt.Errorf("%s.allowed_pull_policies: %w", path, err)
	}
	return p, nil
}

// policy is the one that is in force for an image: of those that the job names, or else the configuration, the first that
// is allowed; where nobody names one, the default that the API server would fill in. Allowed is what allowed_pull_policies
// says, or else what pull_policy lists: GitLab's rules. Where neither is set a job may ask for more pulling than the
// default, never for less: an image that another job's credentials have pulled must not be had without any.
func (p pulling) policy(image string, job []string) (corev1.PullPolicy, error) {
	asked, err := pullPolicies(job)
	if err != nil {
		return "", &JobError{Field: "pull_policy", Message: err.Error()}
	}
	allowed := p.allowed
	if len(allowed) == 0 {
		allowed = p.configured
	}
	if len(allowed) == 0 {
		allowed = []corev1.PullPolicy{defaultPullPolicy(image), corev1.PullAlways}
	}
	wanted := asked
	if len(wanted) == 0 {
		wanted = p.configured
	}
	if len(wanted) == 0 {
		wanted = []corev1.PullPolicy{defaultPullPolicy(image), allowed[0]}
	}
	for _, policy := range wanted {
		if slices.Contains(allowed, policy) {
			return policy, nil
		}
	}
	if len(asked) == 0 {
		return "", fmt.Errorf("%s.pull_policy: %v is not among allowed_pull_policies, %v", p.path, wanted, allowed)
	}
	return "", &JobError{
		Field:   "pull_policy",
		Message: fmt.Sprintf("the job asks for %v, the runner allows %v for %s", asked, slices.Compact(slices.Clone(allowed)), image),
	}
}

// defaultPullPolicy is the Kubernetes API's own default.
func defaultPullPolicy(image string) corev1.PullPolicy {
	if ref := parseReference(image); ref.tag == "latest" || ref.tag == "" && ref.digest == "" {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}
