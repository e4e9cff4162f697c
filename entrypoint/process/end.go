//go:build linux

package process

import (
	"bytes"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// A process may have forked between the look and the KILL, so it is looked again after killPause, up to killRounds times:
// one that hangs in the kernel can't be helped. Rounds are counted, not time, which also passes while the node is stalled.
const (
	killPause  = 20 * time.Millisecond
	killRounds = 250
)

// End ends everything that descends from this process: TERM now, KILL to what is left after the grace. main's process
// group gets the TERM as one, main may be nil. A shorter grace may come later, counted from then. End returns as soon as
// nothing is left, and returns how many processes it could not end. Processes that others started in the same container, by
// an exec, are not touched.
func (t *Table) End(main *Child, grace time.Duration, sooner <-chan time.Duration) (left int) {
	group := 0
	if main != nil {
		group = main.Pid
		t.signalGroup(main, unix.SIGTERM)
	}
	for _, p := range descendants() {
		if p.group != group {
			_ = unix.Kill(p.pid, unix.SIGTERM)
		}
	}
	deadline := time.Now().Add(grace)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	for {
		changed := t.Changed()
		if t.Alone() {
			return 0
		}
		select {
		case <-changed:
		case grace := <-sooner:
			if until := time.Now().Add(grace); until.Before(deadline) {
				deadline = until
				timer.Reset(grace)
			}
		case <-timer.C:
			return t.kill()
		}
	}
}

// kill kills until nobody is left, or it is of no use.
func (t *Table) kill() (left int) {
	again := time.NewTicker(killPause)
	defer again.Stop()
	for rounds := 0; rounds < killRounds; {
		changed := t.Changed()
		all := descendants()
		for _, p := range all {
			_ = unix.Kill(p.pid, unix.SIGKILL)
		}
		if t.Alone() {
			return 0
		}
		left = len(all)
		select {
		case <-changed:
		case <-again.C:
			rounds++
		}
	}
	return left
}

type entry struct {
	pid, parent, group int
}

// descendants lists the living processes below this one.
func descendants() []entry {
	names, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var all []entry
	for _, name := range names {
		pid, err := strconv.Atoi(name.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + name.Name() + "/stat")
		if err != nil {
			continue // ended meanwhile
		}
		if p, ok := parseStat(pid, stat); ok {
			all = append(all, p)
		}
	}
	return below(os.Getpid(), all)
}

// parseStat reads the parent and the process group from the content of /proc/PID/stat. The name of the program, in
// parentheses, may hold anything, also parentheses and spaces.
func parseStat(pid int, stat []byte) (entry, bool) {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 3 {
		return entry{}, false
	}
	parent, err1 := strconv.Atoi(string(fields[1]))
	group, err2 := strconv.Atoi(string(fields[2]))
	if err1 != nil || err2 != nil {
		return entry{}, false
	}
	return entry{pid: pid, parent: parent, group: group}, true
}

// below picks those whose line of parents leads to root.
func below(root int, all []entry) []entry {
	children := map[int][]entry{}
	for _, p := range all {
		children[p.parent] = append(children[p.parent], p)
	}
	var found []entry
	for next := children[root]; len(next) > 0; {
		p := next[0]
		next = next[1:]
		found = append(found, p)
		next = append(next, children[p.pid]...)
		delete(children, p.pid)
	}
	return found
}
