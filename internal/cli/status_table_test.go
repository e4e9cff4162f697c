package cli

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	capacitystatus "idlecount.dev/idlecount/capacity/status"
	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/internal/leases"
	"idlecount.dev/idlecount/pool/status"
)

var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

// everyKind is one pool of each kind that a table can show.
func everyKind() statusList {
	const lease = "idlecount/idlecount"
	return statusList{
		Managers: []status.Manager{{Lease: lease, Holder: "idlecount-7d4b9c6f5-abcde_1", Renewed: new(noon.Add(-time.Second)), State: leases.Held}},
		Pools: []status.Pool{
			{
				Namespace: "ci", Name: "fakefakef-0a1b2c3d4e", Runner: "ci", Image: "alpine:3.22", Shape: "0a1b2c3d4e", Managed: true,
				Policy: "default", Want: 2, Idle: 2, Claimed: 1, IdleTime: "30m0s", Lease: lease, OldestIdle: new(noon.Add(-310 * time.Second)),
				Pods: []status.Pod{
					{Name: "idle-a", Phase: factory.Idle, Node: "node-1", Created: noon.Add(-311 * time.Second), IdleSince: new(noon.Add(-310 * time.Second))},
					{Name: "idle-b", Phase: factory.Idle, Node: "node-2", Created: noon.Add(-42 * time.Second), IdleSince: new(noon.Add(-40 * time.Second))},
					{
						Name: "job-a", Phase: factory.Claimed, Node: "node-1", Created: noon.Add(-20 * time.Minute), Job: "4242", Warmth: "warm",
						ClaimedAt: new(noon.Add(-10 * time.Second)),
					},
				},
			},
			{
				Namespace: "ci", Name: "fakefakef-1a1b2c3d4e", Runner: "ci", Image: "registry.example.com/team/builder:1.26-bookworm", Shape: "1a1b2c3d4e",
				Managed: true, Policy: "idle_policy[1]", Want: 10, Idle: 7, Warming: 1, Failed: 2, Short: 3, IdleTime: "1h0m0s", Lease: lease,
				OldestIdle: new(noon.Add(-50 * time.Minute)), OldestWarming: new(noon.Add(-4 * time.Minute)), NextChange: new(noon.Add(7 * time.Hour)),
				Shortfall: &status.Shortfall{
					Reason: status.ImagePull, Since: noon.Add(-3 * time.Minute),
					Message: "Back-off pulling image \"registry.example.com/team/builder:1.26-bookworm\": ErrImagePull:\nnot found",
				},
			},
			{
				Namespace: "ci", Name: "fakefakef-2a1b2c3d4e", Runner: "ci", Image: "golang:1.26", Shape: "2a1b2c3d4e", Managed: true,
				Policy: "default", Want: 2, Warming: 2, Short: 2, IdleTime: "30m0s", Lease: lease, OldestWarming: new(noon.Add(-12 * time.Second)),
				Pods: []status.Pod{{Name: "warming-a", Phase: factory.Warming, Created: noon.Add(-12 * time.Second)}},
			},
			{
				Namespace: "ci", Name: "fakefakef-3a1b2c3d4e", Runner: "fakefakef", Image: "node:24", Shape: "3a1b2c3d4e", Claimed: 1,
				Pods: []status.Pod{{
					Name: "job-b", Phase: factory.Claimed, Node: "node-2", Created: noon.Add(-time.Minute), Job: "4243", Warmth: "cold",
					ClaimedAt: new(noon.Add(-time.Minute)),
				}},
			},
			{
				Namespace: "nightly", Name: "otherothe-4a1b2c3d4e", Runner: "otherothe", Image: "alpine:3.22", Shape: "4a1b2c3d4e", Managed: true,
				Unreadable: "no manager has written its status yet",
			},
		},
		Capacity: everyCapacity(lease),
	}
}

// everyCapacity is one capacity of each kind that a table can show.
func everyCapacity(lease string) []capacitystatus.Row {
	row := func(name string, want, hold, held, pending int) capacitystatus.Row {
		return capacitystatus.Row{
			Namespace: "ci", Name: name, Runner: "stock", Strategy: "pause", Policy: "default", Want: want, Hold: hold, Held: held, Pending: pending, Lease: lease,
		}
	}
	all := []capacitystatus.Row{
		row("stockstoc-pause", 5, 5, 3, 2), row("stockstoc-pause-0a1b2c3d4e", 4, 2, 2, 0), row("otherothe-pause", 0, 6, 6, 0),
		row("pausedpau-pause", 2, 3, 3, 0), row("draineddr-pause", 0, 0, 1, 1), row("bufferbuf-pause", 7, 7, 0, 0),
	}
	all[0].Jobs, all[0].Waits = 7, "0/4 nodes are available:\n4 Insufficient cpu."
	all[0].ScheduledMedian, all[0].ScheduledMost = new(0.0), new(2.0)
	all[0].NextChange = new(noon.Add(6 * time.Hour))
	all[1].Image = "registry.example.com/team/builder:1.26-bookworm"
	all[1].Trouble = &capacitystatus.Trouble{
		Reason: capacitystatus.Quota, Since: noon.Add(-90 * time.Second),
		Message: "the ResourceQuotas of namespace ci leave room for 2; room for 1 more job is kept free (idle_quota_headroom)",
	}
	all[3].Paused, all[4].Drained, all[5].Strategy = true, true, "buffer"
	return all
}

func TestTables(t *testing.T) {
	for name, o := range map[string]tableOptions{
		"status.txt":      {},
		"status-all.txt":  {namespaces: true},
		"status-wide.txt": {wide: true},
		"status-pods.txt": {pods: true},
	} {
		t.Run(name, func(t *testing.T) {
			o.now = noon
			var b bytes.Buffer
			require.NoError(t, writeTables(&b, everyKind(), o))
			golden(t, name, b.String())
		})
	}
}

func TestFormatsForMachines(t *testing.T) {
	for name, format := range map[string]string{"status.json": "json", "status.yaml": "yaml", "status-name.txt": "name"} {
		t.Run(name, func(t *testing.T) {
			streams, _, out, _ := genericiooptions.NewTestIOStreams()
			o := &statusOptions{IOStreams: streams, output: format}
			require.NoError(t, o.print(everyKind()))
			golden(t, name, out.String())
		})
	}
}

func TestNamesOfPods(t *testing.T) {
	streams, _, out, _ := genericiooptions.NewTestIOStreams()
	o := &statusOptions{IOStreams: streams, output: "name", withPods: true}
	list := statusList{
		Pools:    []status.Pool{{Name: "p", Pods: []status.Pod{{Name: "p-a"}, {Name: "p-b"}}}, {Name: "q"}},
		Capacity: []capacitystatus.Row{{Name: "c"}},
	}
	require.NoError(t, o.print(list))
	require.Equal(t, "p-a\np-b\n", out.String(), "a capacity has no pods that anybody would name")
}

// An API server that refuses a pod may print the whole of it.
func TestALongReasonIsCutInATableThatIsNotWide(t *testing.T) {
	long := strings.Repeat("ö", 1000)
	list := statusList{Pools: []status.Pool{{Managed: true, Short: 1, Shortfall: &status.Shortfall{Reason: status.Admission, Message: long, Since: noon}}}}
	list.Capacity = []capacitystatus.Row{{Trouble: &capacitystatus.Trouble{Reason: capacitystatus.Admission, Message: long, Since: noon}}}
	var narrow, wide bytes.Buffer
	require.NoError(t, writeTables(&narrow, list, tableOptions{now: noon}))
	require.NoError(t, writeTables(&wide, list, tableOptions{now: noon, wide: true}))
	require.Equal(t, 2, strings.Count(narrow.String(), "ö… (all of it with -o wide)"))
	require.Less(t, narrow.Len(), 2400)
	require.Equal(t, 2, strings.Count(wide.String(), long))
}

func TestNoPoolsAreAnEmptyListForMachinesAndNothingForPeople(t *testing.T) {
	none := statusList{Pools: status.Pools(nil, nil, false), Managers: []status.Manager{}}
	for format, want := range map[string]string{
		"": "", "wide": "", "name": "",
		"json": "{\n  \"pools\": [],\n  \"managers\": []\n}\n",
		"yaml": "managers: []\npools: []\n",
	} {
		streams, _, out, _ := genericiooptions.NewTestIOStreams()
		o := &statusOptions{IOStreams: streams, output: format, now: func() time.Time { return noon }}
		require.NoError(t, o.print(none))
		require.Equal(t, want, out.String(), format)
	}
}

func TestAWatchPrintsOnlyWhatIsNews(t *testing.T) {
	streams, _, out, errOut := genericiooptions.NewTestIOStreams()
	o := &statusOptions{IOStreams: streams, output: "name", now: func() time.Time { return noon }}
	pools := func(claimed int, renewed time.Time, state leases.State) statusList {
		return statusList{
			Pools:    []status.Pool{{Name: "p", Managed: true, Claimed: claimed, Lease: "i/l"}},
			Managers: []status.Manager{{Lease: "i/l", Holder: "a", Renewed: &renewed, State: state}},
		}
	}
	s := &screen{}
	require.NoError(t, o.show(s, pools(0, noon, leases.Held)))
	require.NoError(t, o.show(s, pools(0, noon.Add(2*time.Second), leases.Held)))
	require.Equal(t, "p\n", out.String(), "a renewed lease is no news")
	require.NoError(t, o.show(s, pools(1, noon, leases.Held)))
	require.Equal(t, "p\np\n", out.String())
	require.Empty(t, errOut.String())
	require.NoError(t, o.show(s, pools(1, noon, leases.Lapsed)))
	require.NoError(t, o.show(s, pools(1, noon, leases.Lapsed)))
	require.Equal(t, "p\np\np\n", out.String())
	require.Equal(t, "warning: no manager holds the lease i/l (a renewed it 0s ago): idle pods are not refilled\n", errOut.String(), "once")
}

func TestWhatDoesntHappenWithoutAManager(t *testing.T) {
	streams, _, _, errOut := genericiooptions.NewTestIOStreams()
	o := &statusOptions{IOStreams: streams, now: func() time.Time { return noon }}
	list := statusList{
		Pools: []status.Pool{{Name: "p", Lease: "i/pools"}}, Capacity: []capacitystatus.Row{{Name: "c", Lease: "i/pools"}, {Name: "d", Lease: "i/room"}},
	}
	require.Equal(t, []string{"i/pools", "i/room"}, list.leases())
	for _, lease := range list.leases() {
		list.Managers = append(list.Managers, status.ManagerOf(lease, nil, noon))
	}
	o.warn(list)
	require.Equal(t, "warning: no manager runs: there is no lease i/pools, idle pods are not refilled; start `idlecount run`\n"+
		"warning: no manager runs: there is no lease i/room, room for jobs is not kept; start `idlecount run`\n", errOut.String())
}

func TestAConfigurationThatTheManagerCannotUseIsToldOnce(t *testing.T) {
	streams, _, out, errOut := genericiooptions.NewTestIOStreams()
	o := &statusOptions{IOStreams: streams, now: func() time.Time { return noon }}
	o.warn(statusList{Pools: []status.Pool{
		{Name: "a", ConfigError: "config.toml:3:1: expected\na value"}, {Name: "b", ConfigError: "config.toml:3:1: expected\na value"}, {Name: "c"},
	}})
	require.Empty(t, out.String())
	require.Equal(t, "warning: the manager can't use its configuration as it is now and goes on with the one before: config.toml:3:1: expected a value\n",
		errOut.String())
}

// golden is that of the tests outside the package; -update is theirs, too.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if flag.Lookup("update").Value.String() == "true" {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got, "%s differs; if that is meant: make golden", path)
}
