//go:build linux

package process

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseStat(t *testing.T) {
	cases := map[string]struct {
		stat string
		want entry
		ok   bool
	}{
		"an ordinary one":                        {"7 (sh) S 1 7 7 0 -1", entry{7, 1, 7}, true},
		"a name with parentheses and spaces":     {"7 (a) S 9 (b) R 3 4 5 6", entry{7, 3, 4}, true},
		"a name that ends with a newline":        {"7 (x\n) Z 2 3 3", entry{7, 2, 3}, true},
		"one that ended while it was being read": {"", entry{}, false},
		"one that is cut":                        {"7 (sh) S 1", entry{}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, ok := parseStat(7, []byte(c.stat))
			require.Equal(t, c.ok, ok)
			require.Equal(t, c.want, got)
		})
	}
}

func TestBelow(t *testing.T) {
	all := []entry{
		{pid: 1, parent: 0}, {pid: 10, parent: 1}, {pid: 11, parent: 10}, {pid: 12, parent: 11}, {pid: 20, parent: 1},
		{pid: 30, parent: 0}, {pid: 31, parent: 30}, // an exec from outside, and its child
		{pid: 40, parent: 41}, {pid: 41, parent: 40}, // a snapshot may be torn
	}
	var pids []int
	for _, p := range below(1, all) {
		pids = append(pids, p.pid)
	}
	slices.Sort(pids)
	require.Equal(t, []int{10, 11, 12, 20}, pids)
	require.Empty(t, below(99, all))
}
