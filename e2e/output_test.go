package e2e_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/e2e/images"
	"idlecount.dev/idlecount/e2e/runner"
)

func TestAScriptCannotSwallowTheRestOfItself(t *testing.T) {
	t.Parallel()
	for _, image := range []images.Name{images.JobBash, images.JobBusybox} {
		s := newSite(t, nil)
		result := s.run(runner.Job{Image: s.ref(image), Script: []string{"cat", "read line || echo nothing to read", "ls -l /proc/self/fd/0", "echo the rest"}})
		require.Equal(t, runner.Success, result.Status)
		require.Contains(t, string(result.Output("build_script")), "\nnothing to read\n")
		require.Contains(t, string(result.Output("build_script")), "\nthe rest\n")
	}
}

func TestOneLineOf4MiB(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	result := s.run(runner.Job{Script: []string{"head -c 4194304 /dev/zero | tr '\\0' x; echo; echo done"}})
	require.Equal(t, runner.Success, result.Status)
	require.Contains(t, string(result.Output("build_script")), "\n"+strings.Repeat("x", 4<<20)+"\n")
}

func TestBinaryOutputComesThroughAsItIs(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	// All bytes, NUL included, twice, from both streams in turn.
	all := `for i in $(seq 0 255); do printf "\\x$(printf %02x $i)"; done`
	result := s.run(runner.Job{Script: []string{all, "{ " + all + "; } >&2"}})
	require.Equal(t, runner.Success, result.Status)
	want := make([]byte, 256)
	for i := range want {
		want[i] = byte(i)
	}
	require.Equal(t, 2, bytes.Count(result.Output("build_script"), want))
}

// lineHash takes a log's lines of x and digits, and forgets all else.
type lineHash struct {
	sum  hash.Hash
	rest []byte
	n    int64
}

func (h *lineHash) Write(p []byte) (int, error) {
	h.rest = append(h.rest, p...)
	for {
		end := bytes.IndexByte(h.rest, '\n')
		if end < 0 {
			return len(p), nil
		}
		if line := h.rest[:end+1]; line[0] == 'x' {
			h.sum.Write(line)
			h.n += int64(len(line))
		}
		h.rest = h.rest[end+1:]
	}
}

func TestALogOf100MB(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	const lines = 1_000_000 // of 100 bytes each
	log, want := &lineHash{sum: sha256.New()}, sha256.New()
	for i := range lines {
		fmt.Fprintf(want, "x%098d\n", i)
	}
	result := s.runner.Run(t.Context(), numbered(runner.Job{Script: []string{fmt.Sprintf(`awk 'BEGIN { for (i = 0; i < %d; i++) printf "x%%098d\n", i }'`, lines)}}), log)
	require.Equal(t, runner.Success, result.Status)
	require.EqualValues(t, lines*100, log.n)
	require.Equal(t, hex.EncodeToString(want.Sum(nil)), hex.EncodeToString(log.sum.Sum(nil)))
	call, _ := result.Call("build_script")
	t.Logf("100 MB in %s", call.End.Sub(call.Start))
}

func TestVariablesOfAnyContent(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	// The kernel takes no string of 128 KiB or more among a process's variables, and CUSTOM_ENV_ stands before the name.
	nasty := "line\nline\n'\"\\ $HOME `id` $(id) ${x} \t\x01\x7f é \xff !#&*;<>?[]{}|~"
	large := strings.Repeat("0123456789abcdef", 8000) // 128,000 bytes
	for _, image := range []images.Name{images.JobBash, images.JobBusybox} {
		result := s.run(runner.Job{Image: s.ref(image),
			Variables: []runner.Variable{
				{Key: "NASTY", Value: nasty, Raw: true},
				{Key: "NASTY_FILE", Value: nasty, Raw: true, File: true},
				{Key: "LARGE", Value: large, Raw: true},
				{Key: "LARGE_FILE", Value: large, Raw: true, File: true},
			},
			Script: []string{`printf %s "$NASTY" | sha256sum`, `sha256sum < "$NASTY_FILE"`, `printf %s "$LARGE" | sha256sum`, `sha256sum < "$LARGE_FILE"`}})
		require.Equal(t, runner.Success, result.Status)
		output := string(result.Output("build_script"))
		for _, text := range []string{nasty, large} {
			sum := sha256.Sum256([]byte(text))
			require.Equal(t, 2, strings.Count(output, hex.EncodeToString(sum[:])+"  -\n"), "%.40q", text)
		}
	}
}

// GitLab Runner can't start any driver with such a variable; what matters is that nothing is left behind.
func TestAVariableThatTheKernelRefusesLeavesNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	job := numbered(runner.Job{Variables: []runner.Variable{{Key: "HUGE", Value: strings.Repeat("x", 128<<10)}}, Script: []string{"true"}})
	result := s.run(job)
	require.Equal(t, runner.RunnerSystemFailure, result.FailureReason)
	require.ErrorContains(t, result.Err, "argument list too long")
	s.untilNone(job.ID)
}
