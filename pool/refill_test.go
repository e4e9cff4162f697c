package pool

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestRefillLag goes through what happens to a pool step by step: claims, and passes that find so many pods missing.
func TestRefillLag(t *testing.T) {
	type step struct {
		at              int // seconds
		claims          int // made at that time; else a pass
		wanted, missing int
		forget          bool
		took            []int // seconds of the claims that are made good
	}
	for sentence, steps := range map[string][]step{
		"a claim is made good when the pool is full again": {
			{at: 0, wanted: 3}, {at: 10, claims: 1}, {at: 11, wanted: 3, missing: 1}, {at: 14, wanted: 3, took: []int{4}}, {at: 20, wanted: 3},
		},
		"each claim has its own time, the oldest is made good first": {
			{at: 10, claims: 1}, {at: 12, claims: 1}, {at: 13, wanted: 3, missing: 2}, {at: 15, wanted: 3, missing: 1, took: []int{5}},
			{at: 19, wanted: 3, took: []int{7}},
		},
		"where claims never stop the pool is never full, and the lag is seen nevertheless": {
			{at: 10, claims: 2}, {at: 11, wanted: 2, missing: 2}, {at: 12, wanted: 2, missing: 1, took: []int{2}},
			{at: 13, claims: 1}, {at: 14, wanted: 2, missing: 2}, {at: 15, wanted: 2, missing: 1, took: []int{5}},
		},
		"a pass that began before a claim hasn't seen it": {
			{at: 10, claims: 1}, {at: 9, wanted: 3}, {at: 10, wanted: 3}, {at: 13, wanted: 3, took: []int{3}},
		},
		"a pool that has more than it wants is full at once": {
			{at: 10, claims: 1}, {at: 11, wanted: 3, took: []int{1}},
		},
		"where fewer are wanted nothing was refilled": {
			{at: 5, wanted: 3}, {at: 10, claims: 2}, {at: 11, wanted: 3, missing: 2}, {at: 12, wanted: 1}, {at: 13, wanted: 1},
		},
		"a pool that is filled for the first time is no refill": {
			{at: 0, wanted: 3, missing: 3}, {at: 1, wanted: 3, missing: 1}, {at: 2, wanted: 3},
		},
		"a paused pool refills nothing": {
			{at: 10, claims: 1}, {at: 11, wanted: 3, missing: 1, forget: true}, {at: 90, wanted: 3},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			epoch := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			r := newRefills()
			for i, s := range steps {
				at := epoch.Add(time.Duration(s.at) * time.Second)
				for range s.claims {
					r.claimed("p", at)
				}
				if s.claims > 0 {
					continue
				}
				if s.forget {
					r.forget("p")
				}
				var took []int
				for _, d := range r.settle("p", at, s.wanted, s.missing) {
					took = append(took, int(d/time.Second))
				}
				require.Equal(t, s.took, took, "step %d", i)
			}
		})
	}
}

// TestOpenClaimsAreBounded: a pool that can't be refilled is claimed from as long as pods come, and that may be for months.
func TestOpenClaimsAreBounded(t *testing.T) {
	r := newRefills()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for range 1000 {
		now = now.Add(time.Second)
		r.claimed("p", now)
		r.settle("p", now.Add(time.Millisecond), 4, 4)
		require.LessOrEqual(t, len(r.pools["p"].at), 4)
	}
}
