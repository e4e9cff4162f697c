package fleet

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Usage is what a process takes of its machine, as Linux's /proc has it.
type Usage struct {
	RSS, Peak int64         // resident memory now and at most so far, in bytes: VmRSS and VmHWM
	CPU       time.Duration // user and system time so far
}

// Usage reads what the manager takes.
func (p *Process) Usage() (Usage, error) {
	folder := fmt.Sprintf("/proc/%d/", p.cmd.Process.Pid)
	status, err := os.ReadFile(folder + "status")
	if err != nil {
		return Usage{}, err
	}
	stat, err := os.ReadFile(folder + "stat")
	if err != nil {
		return Usage{}, err
	}
	return parseUsage(string(status), string(stat))
}

// ticksPerSecond is USER_HZ, in which /proc counts time on all of Linux's architectures that Go knows.
const ticksPerSecond = 100

func parseUsage(status, stat string) (Usage, error) {
	var u Usage
	for line := range strings.Lines(status) {
		fields := strings.Fields(line)
		if len(fields) != 3 || fields[2] != "kB" {
			continue
		}
		n, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			return u, fmt.Errorf("/proc/PID/status: %q: %w", line, err)
		}
		switch fields[0] {
		case "VmRSS:":
			u.RSS = n << 10
		case "VmHWM:":
			u.Peak = n << 10
		}
	}
	// The second field is the program's name in parentheses and may hold anything; utime and stime are the 14th and 15th.
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 || u.RSS == 0 {
		return u, fmt.Errorf("/proc/PID/stat and status are not as expected: %q", stat)
	}
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return u, fmt.Errorf("/proc/PID/stat: %w", err)
		}
		u.CPU += time.Duration(n) * time.Second / ticksPerSecond
	}
	return u, nil
}
