package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// allowed checks what jobs may choose, and that idle pods are something that they may choose.
func (c *checker) allowed() {
	k := c.runner.Kubernetes
	for _, list := range []struct {
		key      string
		patterns []string
	}{{"allowed_images", k.AllowedImages}, {"allowed_services", k.AllowedServices}} {
		for i, pattern := range list.patterns {
			if !doublestar.ValidatePattern(pattern) {
				c.wrong(fmt.Sprintf("kubernetes.%s[%d]", list.key, i), "%q is not a pattern: it would match no image", pattern)
			}
		}
	}
	for i, image := range k.IdleImages {
		c.ofUse(fmt.Sprintf("kubernetes.idle_images[%d]", i), image)
	}
	for i, o := range k.IdleOverrides {
		c.ofUse(fmt.Sprintf("kubernetes.idle_image[%d].image", i), o.Image)
	}
	for _, list := range []struct {
		key string
		ids []string
	}{{"allowed_users", k.AllowedUsers}, {"allowed_groups", k.AllowedGroups}} {
		for i, id := range list.ids {
			if n, err := strconv.ParseInt(id, 10, 64); err != nil || n < 0 {
				c.wrong(fmt.Sprintf("kubernetes.%s[%d]", list.key, i), `%q is not a numeric id such as "1000"`, id)
			}
		}
	}
	c.allowedPullPolicies()
}

// ofUse warns of an image whose idle pods no job may claim.
func (c *checker) ofUse(key, image string) {
	if k := c.runner.Kubernetes; image != "" && !strings.Contains(image, "$") && !k.AllowsImage(image) {
		c.warn(key, "%q is kept for nobody: no job may use it, since allowed_images (%s) doesn't have it", image, quoteAll(k.AllowedImages))
	}
}

func (c *checker) allowedPullPolicies() {
	k := c.runner.Kubernetes
	c.pullPolicyWords("kubernetes.allowed_pull_policies", k.AllowedPullPolicies)
	c.pullPolicyWords("kubernetes.pull_policy", k.PullPolicy)
	allowed := func(policy string) bool { return slices.Contains(k.AllowedPullPolicies, policy) }
	if len(k.PullPolicy) > 0 && len(k.AllowedPullPolicies) > 0 && !slices.ContainsFunc(k.PullPolicy, allowed) {
		c.wrong("kubernetes.pull_policy", "%s is not among allowed_pull_policies (%s), so no pod could be made",
			quoteAll(k.PullPolicy), quoteAll(k.AllowedPullPolicies))
	}
	if len(k.PullPolicy) > 1 {
		c.warn("kubernetes.pull_policy", "has %d policies: only the first that is allowed is used; a pull that fails is not tried again with the next",
			len(k.PullPolicy))
	}
}

func (c *checker) pullPolicyWords(key string, words []string) {
	for i, word := range words {
		if word != "always" && word != "if-not-present" && word != "never" {
			c.wrong(element(key, i, len(words)), "%q is not a pull policy: use always, if-not-present or never", word)
		}
	}
}
