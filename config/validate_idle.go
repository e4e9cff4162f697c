package config

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"

	"idlecount.dev/idlecount/cron"
)

// Bounds of our numbers. They are far beyond what a cluster holds; a number above them is a slip of the finger, and would
// make the manager fill the cluster.
const (
	maxIdleCount   = 100_000
	maxScaleFactor = 1_000
	minTime        = time.Second

	// briefAbandonTime is how long an API server or a kubelet may well take to restart.
	briefAbandonTime = time.Minute
	// steepScaleFactor is where a few jobs at a time begin to make more pods than anybody keeps by intent.
	steepScaleFactor = 10
)

// idle checks idlecount's own keys of the table.
func (c *checker) idle() {
	k := c.runner.Kubernetes
	c.values("kubernetes.", &k.IdleCount, &k.IdleTime, &k.ScaleFactor, &k.ScaleFactorLimit)
	switch t := k.IdleAbandonTime.Duration; {
	case t < minTime:
		c.wrong("kubernetes.idle_abandon_time", "%q is too short: it must be at least %s", t, minTime)
	case t < briefAbandonTime:
		c.warn("kubernetes.idle_abandon_time", "%q is short: a driver that can't reach its pod for so long, while an API server or a node restarts, loses its job", t)
	}
	c.growth()
	if !slices.Contains([]string{StrategyPods, StrategyPause, StrategyBuffer}, k.IdleStrategy) {
		c.wrong("kubernetes.idle_strategy", "%q is not a strategy: use %q, %q or %q", k.IdleStrategy, StrategyPods, StrategyPause, StrategyBuffer)
	}
	c.lead()
	c.pause()
	images := c.runner.IdleImages()
	wanted, most, total := c.wanted(images)
	switch {
	case !c.runner.KeepsPods():
		return // room for a job is that of any image
	case wanted && len(images) == 0 && !c.broken("kubernetes.idle_images"):
		c.wrong("kubernetes.image", "is missing: idle pods are wanted, and need a job image; set image or idle_images")
	case !wanted && c.isSet("kubernetes.idle_images") && !c.setAnywhere("idle_count", "scale_factor"):
		c.warn("kubernetes.idle_images", "has no effect: idle_count is set neither here nor in an idle_policy")
	}
	if limit := c.runner.Limit; limit > 0 && most <= maxIdleCount && total > limit {
		each := fmt.Sprintf("%d for each of %s", most, plural(len(images), "image"))
		if total != most*len(images) {
			each = "of " + plural(len(images), "image") + " together"
		}
		c.warn("limit", "is %d: it also bounds idle pods, of which up to %d are wanted (%s)", limit, total, each)
	}
}

// wanted says whether idle pods of any image are wanted at any time, or of an image that is still to be named, how many
// of one image at most, and how many of all.
func (c *checker) wanted(images []string) (wants bool, most, total int) {
	count, factor := c.runner.wants("")
	if len(images) > 0 {
		count, factor = 0, 0
	}
	for _, image := range images {
		n, f := c.runner.wants(image)
		count, factor, total = max(count, n), max(factor, f), total+n
	}
	return count > 0 || factor > 0, count, total
}

// maxLeadTime: who wants pods a day before they are used wants another period.
const maxLeadTime = 24 * time.Hour

// lead checks how long before a period its count rises.
func (c *checker) lead() {
	policies, _ := c.runner.policies()
	switch lead := c.runner.Kubernetes.IdleLeadTime.Duration; {
	case lead < 0:
		c.wrong("kubernetes.idle_lead_time", `%q is negative: it is how long before a period its pods are made`, lead)
	case lead > maxLeadTime:
		c.wrong("kubernetes.idle_lead_time", "%q is too long: it must be at most %s; for pods at other times write another period", lead, maxLeadTime)
	case lead > 0 && lead < minTime:
		c.wrong("kubernetes.idle_lead_time", "%q is too short: it must be at least %s, or \"0s\" for none", lead, minTime)
	case lead > 0 && len(policies) == 0:
		c.warn("kubernetes.idle_lead_time", "has no effect: there is no idle_policy whose period could begin")
	}
}

// growth finds a scale_factor that nothing bounds.
func (c *checker) growth() {
	if c.runner.Limit > 0 {
		return
	}
	steep := func(key string, factor float64, limit int) {
		if factor >= steepScaleFactor && factor <= maxScaleFactor && limit == 0 {
			c.warn(key, "%v makes so many pods for each one in use, and nothing bounds them: set scale_factor_limit, or limit of [[runners]]", factor)
		}
	}
	table, values := c.runner.values("")
	policies, name := c.runner.policies()
	steep("kubernetes.scale_factor", table.ScaleFactor, table.ScaleFactorLimit)
	for i, v := range values {
		if policies[i].ScaleFactor != nil || policies[i].ScaleFactorLimit != nil { // else that of the table has been judged
			steep("kubernetes."+name(i)+".scale_factor", v.ScaleFactor, v.ScaleFactorLimit)
		}
	}
}

// setAnywhere says whether one of the keys is set in the table or in a policy of it.
func (c *checker) setAnywhere(keys ...string) bool {
	return slices.ContainsFunc(keys, func(key string) bool {
		return c.isSet("kubernetes."+key) || slices.ContainsFunc(c.runner.Kubernetes.IdlePolicies, func(p IdlePolicy) bool {
			return key == "idle_count" && p.IdleCount != nil || key == "scale_factor" && p.ScaleFactor != nil
		})
	})
}

// values checks the keys that the table and its policies share; nil is a key that isn't set.
func (c *checker) values(prefix string, count *int, idle *Duration, factor *float64, factorLimit *int) {
	for _, n := range []struct {
		key   string
		value *int
	}{{"idle_count", count}, {"scale_factor_limit", factorLimit}} {
		switch {
		case n.value == nil:
		case *n.value < 0:
			c.wrong(prefix+n.key, "%d is negative: it must be from 0 to %d", *n.value, maxIdleCount)
		case *n.value > maxIdleCount:
			c.wrong(prefix+n.key, "%d is too large: it must be from 0 to %d", *n.value, maxIdleCount)
		}
	}
	if factor != nil && (math.IsNaN(*factor) || *factor < 0 || *factor > maxScaleFactor) {
		c.wrong(prefix+"scale_factor", "%v is not a number from 0 to %d", *factor, maxScaleFactor)
	}
	switch {
	case idle == nil || idle.Duration == 0 || idle.Duration >= minTime:
	case idle.Duration < 0:
		c.wrong(prefix+"idle_time", `%q is negative; "0s" lets idle pods live on`, idle.Duration)
	default:
		c.wrong(prefix+"idle_time", `%q is too short: it must be at least %s, or "0s" to let idle pods live on`, idle.Duration, minTime)
	}
}

// policies checks the idle_policy tables.
func (c *checker) policies() {
	for i, p := range c.runner.Kubernetes.IdlePolicies {
		prefix := fmt.Sprintf("kubernetes.idle_policy[%d]", i)
		c.policy(prefix, p)
		if p.Periods != nil && len(p.Periods) == 0 {
			c.wrong(prefix+".periods", "is empty, so the policy would never be in force; without the key it always is")
		}
		if n := p.IdlePauseCount; n != nil && (*n < 0 || *n > maxIdleCount) {
			c.wrong(prefix+".idle_pause_count", "%d is out of range: it must be from 0 to %d", *n, maxIdleCount)
		}
		if p.IdleCount == nil && p.IdlePauseCount == nil && p.IdleTime == nil && p.ScaleFactor == nil && p.ScaleFactorLimit == nil {
			c.warn(prefix, "sets no value: while it is in force, those of [runners.kubernetes] hold")
		}
	}
}

// policy checks a policy of either table.
func (c *checker) policy(prefix string, p IdlePolicy) {
	c.values(prefix+".", p.IdleCount, p.IdleTime, p.ScaleFactor, p.ScaleFactorLimit)
	timezone := p.Timezone
	if err := cron.CheckTimezone(timezone); err != nil {
		c.wrong(prefix+".timezone", "%s", err)
		timezone = "" // the periods have problems of their own
	}
	for j, spec := range p.Periods {
		if _, err := cron.ParsePeriod(spec, timezone); err != nil {
			c.wrong(fmt.Sprintf("%s.periods[%d]", prefix, j), "%s", err)
		}
	}
	if p.Timezone == "" && slices.ContainsFunc(p.Periods, followsTheClock) {
		c.warn(prefix+".timezone", "is not set: the periods are in the timezone of the system where idlecount runs, which is UTC in a container")
	}
}

// followsTheClock says whether a period depends on more than the minute, which is the same nearly everywhere.
func followsTheClock(period string) bool {
	fields := strings.Fields(period)
	return len(fields) > 1 && slices.ContainsFunc(fields[1:], func(field string) bool { return field != "*" })
}

// images checks every image that the configuration names.
func (c *checker) images() {
	k := c.runner.Kubernetes
	for _, i := range []struct{ key, image string }{
		{"image", k.Image}, {"helper_image", k.HelperImage}, {"idle_entrypoint_image", k.IdleEntrypointImage},
	} {
		if i.image != "" {
			c.image("kubernetes."+i.key, i.image)
		}
	}
	for i, image := range k.IdleImages {
		key := fmt.Sprintf("kubernetes.idle_images[%d]", i)
		first := slices.Index(k.IdleImages, image)
		switch {
		case image == "":
			c.wrong(key, "is empty")
		case first < i:
			c.wrong(key, "%q is there already, as idle_images[%d]: idle_count is the number for each image", image, first)
		default:
			c.image(key, image)
		}
	}
	if !c.isSet("kubernetes.helper_image") && !c.runner.foreign() {
		c.warn("kubernetes.helper_image", "is not set, so it is %s, which moves on with GitLab's releases: "+
			"pin it to the version of your GitLab Runner, e.g. …/gitlab-runner-helper:x86_64-v19.3.0", DefaultHelperImage)
	}
}

// unreleased warns of the entrypoint's image where this build of idlecount has none.
func (c *checker) unreleased() {
	if c.runner.Managed() && c.runner.Kubernetes.IdleEntrypointImage == DefaultEntrypointImage() {
		c.warn("kubernetes.idle_entrypoint_image", "is %s, which doesn't exist, since this build of idlecount is no release: set it to the image that you built",
			DefaultEntrypointImage())
	}
}

// image checks an image reference.
func (c *checker) image(key, image string) {
	if c.runner.foreign() {
		return // not pulled by pods of ours; the executor expands variables in it
	}
	if strings.Contains(image, "$") {
		c.wrong(key, "%q holds a variable, but an idle pod is made before its job is known: write the image in full", image)
		return
	}
	if _, err := name.ParseReference(image, name.WeakValidation); err != nil {
		c.wrong(key, `%q is not an image reference: write it like "alpine:3.22" or "registry.example.com/group/image:tag", `+
			"in lower case but for the tag, and without http://", image)
	}
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
