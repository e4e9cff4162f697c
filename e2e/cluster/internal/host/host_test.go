package host

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseMount(t *testing.T) {
	for name, c := range map[string]struct {
		line string
		want mount
		err  bool
	}{
		"no optional field": {
			line: "36 35 98:0 /mnt1 /var/lib/x rw,noatime - ext4 /dev/root rw,errors=continue",
			want: mount{point: "/var/lib/x", kind: "ext4", options: []string{"rw", "errors=continue"}},
		},
		"optional fields": {
			line: "36 35 98:0 / /sys/fs/cgroup/cpu rw master:1 shared:2 - cgroup cgroup rw,cpu",
			want: mount{point: "/sys/fs/cgroup/cpu", kind: "cgroup", options: []string{"rw", "cpu"}},
		},
		"a path with a space and a backslash": {
			line: `36 35 98:0 / /a\040b\134c rw - tmpfs tmpfs rw`,
			want: mount{point: `/a b\c`, kind: "tmpfs", options: []string{"rw"}},
		},
		"no dash":    {line: "36 35 98:0 / /a rw shared:1", err: true},
		"too short":  {line: "36 35 - ext4 x rw", err: true},
		"empty line": {line: "", err: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseMount(c.line)
			if c.err {
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}

func TestThisMachinesMountsCanBeRead(t *testing.T) {
	all, err := mounts()
	require.NoError(t, err)
	require.True(t, slices.ContainsFunc(all, func(m mount) bool { return m.point == "/proc" && m.kind == "proc" }))
	below, err := MountsBelow("/proc")
	require.NoError(t, err)
	require.Equal(t, "/proc", below[len(below)-1], "the first mounted must be unmounted last")
	none, err := MountsBelow("/pro")
	require.NoError(t, err)
	require.Empty(t, none, "/proc is not below /pro")
}

func TestMissingNamesEachPackageOnce(t *testing.T) {
	there := filepath.Join(t.TempDir(), "there")
	require.NoError(t, os.WriteFile(there, nil, 0o644))
	require.Equal(t, []string{"gone", "also-gone"}, Missing([]Requirement{
		{Any: []string{"sh"}, Package: "a-command"},
		{Any: []string{"/no/such/file", there}, Package: "one-of-two-paths"},
		{Any: []string{"no-such-command"}, Package: "gone"},
		{Any: []string{"/no/such/file"}, Package: "gone"},
		{Any: []string{"/no/such/file"}, Package: "also-gone"},
	}))
}

func TestInstallWithoutAptNamesThePackages(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	err := Install(t.Context(), []Requirement{{Any: []string{"no-such-command"}, Package: "some-package"}}, &bytes.Buffer{})
	require.ErrorContains(t, err, "apt-get install --no-install-recommends some-package")
}

func TestInstallRunsAptGetAndChecksWhatItBrought(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("packages are only installed by root")
	}
	folder := t.TempDir()
	log := filepath.Join(folder, "log")
	script := "#!/bin/sh\necho \"$@\" >>" + log + "\ncase \"$*\" in *install*brings*) echo >" + folder + "/tool; chmod +x " + folder + "/tool;; esac\n"
	require.NoError(t, os.WriteFile(filepath.Join(folder, "apt-get"), []byte(script), 0o755))
	t.Setenv("PATH", folder+":/usr/bin:/bin")

	var progress bytes.Buffer
	require.NoError(t, Install(t.Context(), []Requirement{{Any: []string{filepath.Join(folder, "tool")}, Package: "brings-it"}}, &progress))
	require.Contains(t, progress.String(), "brings-it")
	calls, err := os.ReadFile(log)
	require.NoError(t, err)
	require.Less(t, strings.Index(string(calls), "update"), strings.Index(string(calls), "install --yes --no-install-recommends brings-it"))

	err = Install(t.Context(), []Requirement{{Any: []string{"/no/such/file"}, Package: "useless"}}, &progress)
	require.ErrorContains(t, err, "useless are installed, but")
}

func TestRulesAreCompleteAndUndoable(t *testing.T) {
	n := Network{NodeIP: "10.99.0.1", Bridge: "b0", PodCIDR: "10.98.0.0/20", Service: "10.97.0.1:443", Backend: "10.99.0.1:6443"}
	chains, rules, jumps := n.rules()
	var ours []string
	for _, c := range chains {
		ours = append(ours, c.table+"/"+c.chain)
	}
	for _, r := range rules {
		require.Contains(t, ours, r.table+"/"+r.chain, "a rule outside of our chains would stay behind")
	}
	for _, j := range jumps {
		require.Len(t, j.args, 2, "a jump must be found again by its target alone")
		require.Contains(t, ours, j.table+"/"+j.args[1])
	}
	require.Len(t, jumps, 5)
	require.Contains(t, strings.Join(rules[0].args, " "), "-d 10.97.0.1/32 -p tcp --dport 443 -j DNAT --to-destination 10.99.0.1:6443")
}

func TestListener(t *testing.T) {
	require.Equal(t, "the process kwok (pid 20119)", listener(`LISTEN 0 4096 127.0.0.1:10247 0.0.0.0:* users:(("kwok",pid=20119,fd=8))`))
	require.Equal(t, "another process", listener("LISTEN 0 4096 127.0.0.1:10247 0.0.0.0:*"), "a process of another namespace")
}

func TestCgroupIsMadeInEachHierarchyAndRemoved(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may make control groups")
	}
	c := Cgroup{Name: "idlecount-test-cgroup"}
	if err := c.Create(); err != nil {
		t.Skipf("control groups can't be made here: %v", err)
	}
	t.Cleanup(func() { _ = c.Remove(t.Context()) })
	folders, err := c.Folders()
	require.NoError(t, err)
	require.NotEmpty(t, folders)
	require.NoError(t, os.MkdirAll(filepath.Join(folders[0], "pods", "one"), 0o755))
	require.NoError(t, c.Create(), "twice is fine")

	require.NoError(t, c.Remove(t.Context()))
	folders, err = c.Folders()
	require.NoError(t, err)
	require.Empty(t, folders)
	require.NoError(t, c.Remove(t.Context()), "and so is removing what is gone")
}

func TestRemovingACgroupKillsWhatIsInIt(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may make control groups")
	}
	c := Cgroup{Name: "idlecount-test-kill"}
	if err := c.Create(); err != nil {
		t.Skipf("control groups can't be made here: %v", err)
	}
	t.Cleanup(func() { _ = c.Remove(t.Context()) })
	folders, err := c.Folders()
	require.NoError(t, err)
	cmd := startSleep(t)
	require.NoError(t, os.WriteFile(filepath.Join(folders[0], "cgroup.procs"), []byte(cmd), 0o644))
	require.NoError(t, c.Remove(t.Context()))
}
