package preflight

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestVersions(t *testing.T) {
	for sentence, c := range map[string]struct {
		status   int
		body     string
		services bool
		want     Status
		message  string
	}{
		"one that is new enough":           {200, `{"gitVersion":"v1.37.2"}`, true, OK, "Kubernetes v1.37.2"},
		"the first that is new enough":     {200, `{"gitVersion":"v1.29.0-gke.100"}`, true, OK, "Kubernetes v1.29.0-gke.100"},
		"an old one, and services":         {200, `{"gitVersion":"v1.28.15+k3s1"}`, true, Fail, "don't start before 1.29"},
		"an old one, and no services":      {200, `{"gitVersion":"v1.28.15"}`, false, Warn, "don't start before 1.29"},
		"one that is shown to nobody":      {403, `{"kind":"Status"}`, true, Unknown, "HTTP status 403"},
		"one that can't be read":           {200, `{"gitVersion":"tomorrow"}`, true, Unknown, `"tomorrow"`},
		"an answer that isn't a version's": {200, `hello`, true, Unknown, "doesn't say its version"},
	} {
		t.Run(sentence, func(t *testing.T) {
			r := versionOf(c.status, []byte(c.body), c.services)
			require.Equal(t, c.want, r.Status, r.Message)
			require.Contains(t, r.Message, c.message)
			require.Equal(t, c.want == Warn || c.want == Fail, r.Fix != "")
		})
	}
}

func TestClocks(t *testing.T) {
	noon := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	for sentence, c := range map[string]struct {
		theirs        time.Duration // from noon
		before, after time.Duration // ours
		status        Status
		message       string
	}{
		"equal":                                {0, 0, 0, OK, "agree"},
		"a header is true for a second":        {0, 900 * time.Millisecond, 900 * time.Millisecond, OK, "agree"},
		"an answer that took long":             {0, -20 * time.Second, 20 * time.Second, OK, "agree"},
		"five seconds are nothing":             {5 * time.Second, 0, 0, OK, "agree"},
		"ours is behind by a little":           {7 * time.Second, 0, 0, Warn, "this machine is 7s behind the API server's"},
		"ours is ahead by a little":            {0, 8 * time.Second, 8 * time.Second, Warn, "this machine is 7s ahead of the API server's"},
		"ours is behind by much":               {time.Hour, 0, 0, Fail, "1h0m0s behind"},
		"ours is ahead by much":                {0, time.Hour + time.Second, time.Hour + time.Second, Fail, "1h0m0s ahead of"},
		"what the answer took isn't counted":   {70 * time.Second, 0, 10 * time.Second, Warn, "1m0s behind"},
		"a minute is still a thing to look at": {time.Minute, 0, 0, Warn, "1m0s behind"},
	} {
		t.Run(sentence, func(t *testing.T) {
			r := clockOf(noon.Add(c.theirs).Format(http.TimeFormat), noon.Add(c.before), noon.Add(c.after))
			require.Equal(t, c.status, r.Status, r.Message)
			require.Contains(t, r.Message, c.message)
			require.Equal(t, c.status == OK, r.Fix == "")
		})
	}
	require.Equal(t, Unknown, clockOf("", noon, noon).Status)
}
