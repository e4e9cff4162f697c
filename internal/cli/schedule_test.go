package cli_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/internal/cli"
)

const scheduled = "testdata/config/schedule.toml"

func TestSchedule(t *testing.T) {
	t.Run("one runner, from a time on", func(t *testing.T) {
		code, stdout, stderr := idlecount(t.Context(), "schedule", "-c", scheduled, "weekend", "--at", "2026-03-06T12:00:00Z", "--days", "3")
		require.Equal(t, cli.ExitOK, code, stderr)
		require.Empty(t, stderr)
		require.Equal(t, `weekend (zyxwvutsr) in namespace nightly: alpine:3.22
  FROM                       POLICY           IDLE   IDLE TIME   SCALE FACTOR   PERIOD
  Fri 2026-03-06 07:00 EST   default          1      30m         -              -
  Sat 2026-03-07 00:00 EST   idle_policy[0]   0      30m         -              * * * * sat,sun
  Mon 2026-03-09 00:00 EDT   default          1      30m         -              -
  -> the clocks of America/New_York go forward by 1h on Sun 2026-03-08 02:00 EST: the period "* * * * sat,sun" of idle_policy[0] is up to 1h shorter on that day
`, stdout)
	})
	t.Run("from now on, as JSON, and a runner that isn't there", func(t *testing.T) {
		before := time.Now()
		code, stdout, stderr := idlecount(t.Context(), "schedule", "-c", scheduled, "abcdefghi", "nowhere", "-o", "json")
		require.Equal(t, cli.ExitError, code)
		require.Contains(t, stderr, `error: no runner "nowhere" is managed by idlecount`)
		var list struct {
			From, Until time.Time
			Schedules   []struct {
				Runner string
				Images []string
				Slots  []struct {
					From      time.Time
					IdleCount int `json:"idle_count"`
				}
			}
		}
		require.NoError(t, json.Unmarshal([]byte(stdout), &list))
		require.False(t, list.From.Before(before.Truncate(time.Second)))
		require.Equal(t, list.From.AddDate(0, 0, 7), list.Until)
		require.Len(t, list.Schedules, 2)
		require.Equal(t, []string{"alpine:3.22", "golang:1.26"}, list.Schedules[0].Images)
		require.Equal(t, []string{"node:24"}, list.Schedules[1].Images)
		require.Equal(t, list.From, list.Schedules[0].Slots[0].From)
	})
	t.Run("room for jobs has tables of its own", func(t *testing.T) {
		code, stdout, stderr := idlecount(t.Context(), "schedule", "-c", "testdata/config/room.toml", "--at", "2026-03-02T06:00:00+01:00", "--days", "1")
		require.Equal(t, cli.ExitOK, code, stderr)
		golden(t, "schedule-room.txt", stdout)
		_, stdout, _ = idlecount(t.Context(), "schedule", "-c", "testdata/config/room.toml", "-o", "json")
		var list struct {
			Schedules []struct {
				Runner, Strategy string
				Images           []string
			}
		}
		require.NoError(t, json.Unmarshal([]byte(stdout), &list))
		var found []string
		for _, s := range list.Schedules {
			found = append(found, s.Runner+" "+s.Strategy+" "+strings.Join(s.Images, "|"))
		}
		require.Equal(t, []string{"room pause |registry.example.com/big:1", "room pause registry.example.com/few:1", "beside pods alpine:3.22", "beside pause ", "buffer buffer "}, found)
	})
	t.Run("a file in which nothing is to be managed", func(t *testing.T) {
		code, stdout, stderr := idlecount(t.Context(), "schedule", "-c", "testdata/config/none.toml")
		require.Equal(t, cli.ExitOK, code)
		require.Empty(t, stdout)
		require.Contains(t, stderr, "No runner is managed by idlecount")
	})
}
