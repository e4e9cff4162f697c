package chaos

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"idlecount.dev/idlecount/factory"
)

// Violations are what must not have been, so far.
func (c *Checker) Violations() []Violation {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.violations)
}

// Stats are what has happened so far.
func (c *Checker) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

// Changed returns a channel that is closed with the next event.
func (c *Checker) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// Unfilled says which pools don't have exactly as many idle pods as they want, besides those that are about to expire, or
// have claimed ones; empty where none does. Warming pods can't be beside as many idle ones: there would be too many.
func (c *Checker) Unfilled(at time.Time) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var unfilled []string
	for _, id := range slices.SortedFunc(maps.Keys(c.wants), comparePools) {
		idle, expiring, claimed, target := 0, 0, 0, c.wants[id].Target
		for _, pod := range c.pods[id] {
			switch {
			case factory.PhaseOf(pod) == factory.Idle && mayExpire(pod, at):
				idle, expiring = idle+1, expiring+1
			case factory.PhaseOf(pod) == factory.Idle:
				idle++
			case jobOf(pod) != "":
				claimed++
			}
		}
		// Of the pods that may be expiring the manager still counts some.
		if idle < target || idle-expiring > target || claimed > 0 {
			unfilled = append(unfilled, fmt.Sprintf("pool %s of %d: %d idle, of which %d may expire, %d claimed, %d in all",
				id, target, idle, expiring, claimed, len(c.pods[id])))
		}
	}
	return unfilled
}

func comparePools(a, b PoolID) int { return strings.Compare(a.String(), b.String()) }

// Live are the pods that are there and live.
func (c *Checker) Live() []*corev1.Pod {
	c.mu.Lock()
	defer c.mu.Unlock()
	var live []*corev1.Pod
	for _, pool := range c.pods {
		for _, pod := range pool {
			if pod.DeletionTimestamp == nil && !ended(pod) {
				live = append(live, pod)
			}
		}
	}
	return live
}

// Remaining are the pods that are there, whatever they are.
func (c *Checker) Remaining() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, pool := range c.pods {
		n += len(pool)
	}
	return n
}

// Close notes what is left over, where nothing should be, and returns all violations.
func (c *Checker) Close(at time.Time) []Violation {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, pool := range c.pods {
		for _, pod := range pool {
			c.violate(LeftOver, pod, at, fmt.Sprintf("it is %s, and nothing should be there", factory.PhaseOf(pod)))
		}
	}
	return slices.Clone(c.violations)
}
