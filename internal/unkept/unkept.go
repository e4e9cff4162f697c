// Package unkept holds what of a configuration its manager can't keep at all, and why. The worker knows that, /readyz tells
// it.
package unkept

import (
	"fmt"
	"maps"
	"slices"
	"sync"
)

// List has a reason for each thing that isn't kept, by its name: "pool ci/abc". It may be used by several goroutines.
type List struct {
	mu  sync.Mutex
	why map[string]string
}

// Set says why something isn't kept.
func (l *List) Set(what, why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.why == nil {
		l.why = map[string]string{}
	}
	l.why[what] = why
}

// Drop takes something away that is kept, or isn't wanted any more.
func (l *List) Drop(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.why, what)
}

// Clear forgets all of them: the term is over.
func (l *List) Clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.why)
}

// Reasons are a line for each.
func (l *List) Reasons() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := make([]string, 0, len(l.why))
	for _, what := range slices.Sorted(maps.Keys(l.why)) {
		lines = append(lines, fmt.Sprintf("%s isn't kept: %s", what, l.why[what]))
	}
	return lines
}
