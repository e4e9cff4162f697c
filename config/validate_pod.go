package config

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
)

// ownPrefix begins the labels and annotations that idlecount sets.
const ownPrefix = "idlecount.dev/"

// maxPollTimeout is in seconds. What is far above it doesn't fit a time.Duration.
const maxPollTimeout = 365 * 24 * 60 * 60

// resources checks the requests and limits of all containers, and the numbers of seconds.
func (c *checker) resources() {
	k := c.runner.Kubernetes
	for _, pair := range k.quantities("kubernetes.") {
		c.pair(pair, quantityPair{})
	}
	if k.PollTimeout < 0 {
		c.wrong("kubernetes.poll_timeout", "%d is negative: it is how many seconds a pod may take to start", k.PollTimeout)
	} else if k.PollTimeout > maxPollTimeout {
		c.wrong("kubernetes.poll_timeout", "%d is too large: it is how many seconds a pod may take to start, at most %d, a year", k.PollTimeout, maxPollTimeout)
	}
	for _, s := range []struct {
		key     string
		seconds *int64
	}{
		{"cleanup_grace_period_seconds", k.CleanupGracePeriodSeconds},
		{"pod_termination_grace_period_seconds", k.PodTerminationGracePeriodSeconds},
	} {
		if s.seconds != nil && *s.seconds < 0 {
			c.wrong("kubernetes."+s.key, "%d is negative", *s.seconds)
		}
	}
}

// pair checks the request and the limit of one resource. What isn't set is that of the table, which has been checked.
func (c *checker) pair(p, table quantityPair) {
	read := func(key string, own, inherited *string) (resource.Quantity, bool) {
		switch {
		case own != nil:
			return c.quantity(key, *own)
		case inherited == nil || *inherited == "":
			return resource.Quantity{}, false
		}
		q, err := resource.ParseQuantity(*inherited)
		return q, err == nil
	}
	request, hasRequest := read(p.prefix+p.name+"_request", p.request, table.request)
	limit, hasLimit := read(p.prefix+p.name+"_limit", p.limit, table.limit)
	switch {
	case !hasRequest || !hasLimit || request.Cmp(limit) <= 0:
	case p.request != nil && p.limit != nil:
		c.wrong(p.prefix+p.name+"_request", "%q is more than %s_limit, %q", *p.request, p.name, *p.limit)
	case p.request != nil:
		c.wrong(p.prefix+p.name+"_request", "%q is more than %s_limit of [runners.kubernetes], %q", *p.request, p.name, *table.limit)
	case p.limit != nil:
		c.wrong(p.prefix+p.name+"_limit", "%q is less than %s_request of [runners.kubernetes], %q", *p.limit, p.name, *table.request)
	}
}

// quantity reads an amount of a resource, which may be absent.
func (c *checker) quantity(key, text string) (resource.Quantity, bool) {
	if text == "" {
		return resource.Quantity{}, false
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		c.wrong(key, `%q is not a quantity: write it like "500m" or "2" for CPUs, "512Mi" or "2Gi" for bytes`, text)
		return resource.Quantity{}, false
	}
	if q.Sign() < 0 {
		c.wrong(key, "%q is negative", text)
		return resource.Quantity{}, false
	}
	if number, milli := strings.CutSuffix(text, "m"); milli && !strings.Contains(key, "cpu") {
		c.warn(key, "%q is thousandths of a byte: did you mean %q?", text, number+"Mi")
	}
	return q, true
}

// placement checks where pods are made, and by whom.
func (c *checker) placement() {
	k := c.runner.Kubernetes
	c.named("kubernetes.namespace", k.Namespace, validation.IsDNS1123Label)
	if k.ServiceAccount != "" {
		c.named("kubernetes.service_account", k.ServiceAccount, validation.IsDNS1123Subdomain)
	}
	for i, secret := range k.ImagePullSecrets {
		c.named(fmt.Sprintf("kubernetes.image_pull_secrets[%d]", i), secret, validation.IsDNS1123Subdomain)
	}
	for _, key := range sortedKeys(k.NodeSelector) {
		at := "kubernetes.node_selector." + quoteKey(key)
		c.named(at, key, validation.IsQualifiedName)
		c.named(at, k.NodeSelector[key], validation.IsValidLabelValue)
	}
	for _, taint := range sortedKeys(k.NodeTolerations) {
		c.toleration("kubernetes.node_tolerations."+quoteKey(taint), taint, k.NodeTolerations[taint])
	}
}

// toleration checks one of node_tolerations: "key=value" or "key" to an effect. An empty key stands for all.
func (c *checker) toleration(at, taint, effect string) {
	key, value, hasValue := strings.Cut(taint, "=")
	if key != "" || hasValue {
		c.named(at, key, validation.IsQualifiedName)
	}
	c.named(at, value, validation.IsValidLabelValue)
	if !slices.Contains([]string{"", "NoSchedule", "PreferNoSchedule", "NoExecute"}, effect) {
		c.wrong(at, "%q is not the effect of a taint: use NoSchedule, PreferNoSchedule, NoExecute, or \"\" for all", effect)
	}
}

// metadata checks the labels and annotations that pods get.
func (c *checker) metadata() {
	k := c.runner.Kubernetes
	for _, key := range sortedKeys(k.PodLabels) {
		at := "kubernetes.pod_labels." + quoteKey(key)
		c.named(at, key, validation.IsQualifiedName)
		if strings.HasPrefix(key, ownPrefix) {
			c.wrong(at, "labels of %s are idlecount's own", ownPrefix)
		}
		if value := k.PodLabels[key]; !strings.Contains(value, "$") { // else it is only known with the job
			c.named(at, value, validation.IsValidLabelValue)
		}
	}
	for _, key := range sortedKeys(k.PodAnnotations) {
		at := "kubernetes.pod_annotations." + quoteKey(key)
		c.named(at, strings.ToLower(key), validation.IsQualifiedName)
		switch {
		case strings.HasPrefix(key, ownPrefix):
			c.wrong(at, "annotations of %s are idlecount's own", ownPrefix)
		case key == "cluster-autoscaler.kubernetes.io/safe-to-evict" || key == "karpenter.sh/do-not-disrupt":
			c.warn(at, "has no effect: idlecount sets it, so that nodes with idle pods can go and jobs are never evicted")
		}
	}
}

// services checks the services that every pod gets.
func (c *checker) services() {
	c.serviceList("kubernetes.services", c.runner.Kubernetes.Services)
}

func (c *checker) serviceList(key string, services []Service) {
	for i, s := range services {
		prefix := fmt.Sprintf("%s[%d]", key, i)
		if s.Name == "" {
			c.wrong(prefix+".name", "is missing: it is the image of the service")
		} else {
			c.image(prefix+".name", s.Name)
		}
		for alias := range strings.FieldsFuncSeq(s.Alias, func(r rune) bool { return r == ',' || r == ' ' }) {
			c.named(prefix+".alias", alias, validation.IsDNS1123Subdomain)
		}
		for j, variable := range s.Environment {
			if name, _, ok := strings.Cut(variable, "="); !ok || name == "" {
				c.wrong(fmt.Sprintf("%s.environment[%d]", prefix, j), "must be NAME=value") // which may be a secret
			}
		}
	}
}

// named checks a text by one of the API's rules for names, and gives the first of the API's reasons, without the pattern
// that it would show to a programmer.
func (c *checker) named(at, text string, rule func(string) []string) {
	if reasons := rule(text); len(reasons) > 0 {
		reason, _, cut := strings.Cut(reasons[0], ", regex used for validation")
		if cut {
			reason += ")"
		}
		c.wrong(at, "%q is not valid: %s", text, reason)
	}
}

// element is the path of a value that may stand alone or in a list.
func element(key string, i, n int) string {
	if n == 1 {
		return key
	}
	return fmt.Sprintf("%s[%d]", key, i)
}
