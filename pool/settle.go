package pool

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/pool/plan"
	"idlecount.dev/idlecount/pool/status"
)

// Reasons of the events on a pool's anchor; a fixed set.
const (
	eventShortfall     = "Shortfall"     // fewer pods are idle than wanted, for a reason other than that they take a moment
	eventRecovered     = "Recovered"     // that reason is gone
	eventPolicyChanged = "PolicyChanged" // another policy is in force
	eventPodFailed     = "PodFailed"     // a pod failed before it was claimed
	eventRemoved       = "Removed"       // the pool has left the configuration
	eventReplaced      = "Replaced"      // … and another one, of another shape, takes its place
	eventDeadline      = "Deadline"      // a claimed pod was ended: its job's deadline has long passed (on the pod)
	eventConfigBroken  = "ConfigBroken"  // the configuration file has changed and can't be used; the one before stays in force
	eventConfigMended  = "ConfigMended"  // it can be used again
	eventTaken         = "Taken"         // another manager has the pool in its configuration too, and leaves it alone
)

// These stand for the policy in the status of a pool that has left the configuration, until its last job has ended.
const (
	policyRemoved  = "removed"
	policyReplaced = "replaced" // another pool takes its place
)

// messageEvery bounds how often a shortfall's message is rewritten while its reason stays: the words of schedulers and
// registries change with every try.
const messageEvery = time.Minute

// settle brings the anchor in line with what the pass has found: the status where it changed, an event for the change; a
// pool that has left the configuration loses its anchor with its last pod.
func (c *controller) settle(ctx context.Context, p *pass, r plan.Result, short *plan.Shortfall) error {
	if p.anchor == nil {
		return nil
	}
	if p.pool == nil && r.Counts == (plan.Counts{}) {
		return c.deleteAnchor(ctx, p.anchor)
	}
	before := p.before
	if p.memory.written != "" {
		if p.memory.written == p.anchor.Data[factory.AnchorStatusKey] {
			p.memory.written = ""
		} else if s, err := decode(p.memory.written); err == nil {
			before = s
		}
	}
	after := p.status(r, short, before)
	encoded := after.Encode()
	if encoded == p.anchor.Data[factory.AnchorStatusKey] || encoded == p.memory.written {
		return nil
	}
	if err := c.writeStatus(ctx, p.anchor, encoded); err != nil {
		return err
	}
	p.memory.written = encoded
	c.announce(p, before, after)
	return nil
}

func decode(encoded string) (status.Status, error) {
	return status.Of(&corev1.ConfigMap{Data: map[string]string{factory.AnchorStatusKey: encoded}})
}

// status is what the anchor should say.
func (p *pass) status(r plan.Result, short *plan.Shortfall, before status.Status) status.Status {
	s := status.Status{
		Runner: before.Runner, Image: before.Image, Shape: before.Shape, Template: before.Template,
		Policy: policyRemoved, IdleTime: "0s", Lease: before.Lease,
	}
	if p.pool == nil && p.anchor != nil {
		if next := p.setup.successor(p.anchor); next != nil {
			s.Policy, s.ReplacedBy = policyReplaced, next.key.name
		}
	}
	if p.pool != nil {
		s = status.Status{
			Runner: p.pool.runner.Name, Image: p.image, Shape: p.pool.shape.Hash(), Template: p.pool.template(p.policy.IdleTime),
			Policy: p.policy.InForce(), Want: r.Wanted, IdleTime: p.policy.IdleTime.String(), Lease: p.lease,
		}
		if change := p.pool.calendar.NextChange(p.now); !change.IsZero() {
			s.NextChange = new(change.UTC())
		}
	}
	s.ConfigError = p.broken
	s.Shortfall = p.shortfallStatus(short, before.Shortfall, r.Counts.Idle-r.Counts.Expiring >= r.Wanted)
	return s
}

// shortfallStatus keeps what a shortfall was called and since when, while it is the same one.
func (p *pass) shortfallStatus(short *plan.Shortfall, before *status.Shortfall, replacing bool) *status.Shortfall {
	if short == nil {
		return nil
	}
	s := &status.Shortfall{
		Reason: status.Reason(short.Reason), Message: short.Message, Since: p.now.UTC().Truncate(time.Second), Replacing: replacing,
	}
	if before != nil && before.Reason == s.Reason {
		s.Since = before.Since
		if p.now.Before(p.memory.messageAt.Add(messageEvery)) {
			s.Message = before.Message
		}
	}
	if before == nil || before.Reason != s.Reason || before.Message != s.Message {
		p.memory.messageAt = p.now
	}
	return s
}

// announce says what has changed, in an event and in the log.
func (c *controller) announce(p *pass, before, after status.Status) {
	log := c.logger(p.key, p.image)
	switch {
	case before.Policy == after.Policy || before.Policy == "":
	case after.Policy == policyReplaced:
		text := "pool " + after.ReplacedBy + " takes this one's place: idle pods go as the other one's become ready, claimed ones stay until their jobs end"
		c.events.Event(p.anchor, corev1.EventTypeNormal, eventReplaced, text)
		log.Info("pool is replaced", "by", after.ReplacedBy)
	case after.Policy == policyRemoved:
		c.events.Event(p.anchor, corev1.EventTypeNormal, eventRemoved, "the pool has left the configuration: its idle pods go, claimed ones stay until their jobs end")
		log.Info("pool has left the configuration")
	default:
		text := fmt.Sprintf("policy %s is in force: %d idle pods, idle time %s", after.Policy, after.Want, after.IdleTime)
		c.events.Event(p.anchor, corev1.EventTypeNormal, eventPolicyChanged, text)
		log.Info("policy changed", "policy", after.Policy, "want", after.Want, "idle_time", after.IdleTime)
	}
	switch { // the log has said it once for all pools
	case after.ConfigError != "" && before.ConfigError != after.ConfigError:
		c.events.Event(p.anchor, corev1.EventTypeWarning, eventConfigBroken, "the configuration before stays in force: "+after.ConfigError)
	case after.ConfigError == "" && before.ConfigError != "":
		c.events.Event(p.anchor, corev1.EventTypeNormal, eventConfigMended, "the configuration file can be used again")
	}
	switch {
	case after.Shortfall != nil && (before.Shortfall == nil || before.Shortfall.Reason != after.Shortfall.Reason):
		c.events.Event(p.anchor, corev1.EventTypeWarning, eventShortfall, string(after.Shortfall.Reason)+": "+after.Shortfall.Message)
		log.Warn("idle pods are missing", "reason", after.Shortfall.Reason, "message", after.Shortfall.Message)
	case after.Shortfall == nil && before.Shortfall != nil:
		c.events.Event(p.anchor, corev1.EventTypeNormal, eventRecovered, string(before.Shortfall.Reason)+" is over")
		log.Info("pool has recovered", "reason", before.Shortfall.Reason)
	}
}

// announceFailure says that pods have failed; those that fail together are announced once.
func (c *controller) announceFailure(p *pass, h plan.History) {
	c.logger(p.key, p.image).Warn("a pod failed before it was claimed", "reason", h.Reason, "message", h.Message, "failures", h.Failures)
	if p.anchor != nil {
		c.events.Event(p.anchor, corev1.EventTypeWarning, eventPodFailed, h.Reason+": "+h.Message)
	}
}
