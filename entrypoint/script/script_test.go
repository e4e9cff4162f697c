//go:build linux

package script

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/entrypoint/wire"
)

func TestEnvironment(t *testing.T) {
	cases := map[string]struct {
		env, folders, want []string
	}{
		"our settings are not for scripts": {
			[]string{"A=1", wire.EnvRole + "=build", wire.EnvIdleTime + "=1h", "IDLECOUNT_NEW=x", "PATH=/bin"}, nil, []string{"A=1", "PATH=/bin"},
		},
		"no variable becomes none":                    {nil, nil, nil},
		"a folder goes to the end of PATH":            {[]string{"PATH=/bin", "A="}, []string{"/tools"}, []string{"A=", "PATH=/bin:/tools"}},
		"the last PATH counts":                        {[]string{"PATH=/a", "PATH=/b"}, []string{"/tools"}, []string{"PATH=/b:/tools"}},
		"without a PATH there is still the usual one": {[]string{"A=1"}, []string{"/tools"}, []string{"A=1", "PATH=" + usualPath + ":/tools"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, Environment(c.env, c.folders...)) })
	}
}

func TestLookPath(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "runs"), nil, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "doesnt"), nil, 0o644))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "folder"), 0o755))
	require.NoError(t, os.Symlink("runs", filepath.Join(dir, "link")))
	t.Chdir(dir)
	env := []string{"PATH=relative::.:" + dir}
	require.Equal(t, filepath.Join(dir, "runs"), LookPath(env, "runs"))
	require.Equal(t, filepath.Join(dir, "link"), LookPath(env, "link"))
	require.Empty(t, LookPath(env, "doesnt"))
	require.Empty(t, LookPath(env, "folder"))
	require.Empty(t, LookPath(nil, "runs"), "the working folder is not searched")
	require.NotEmpty(t, LookPath(nil, "sh"), "the usual places are")
}

func TestReceive(t *testing.T) {
	const script = "echo hi\n"
	sum := sha256.Sum256([]byte(script))
	digest := hex.EncodeToString(sum[:])

	file, err := Receive(strings.NewReader(script+"{}\n"), int64(len(script)), digest)
	require.NoError(t, err)
	defer file.Close()
	_, err = file.Seek(0, io.SeekStart)
	require.NoError(t, err)
	got, err := io.ReadAll(file)
	require.NoError(t, err)
	require.Equal(t, prologue+script, string(got))
	_, err = file.WriteString("more")
	require.Error(t, err, "it is sealed")

	_, err = Receive(strings.NewReader(script[:5]), int64(len(script)), digest)
	require.ErrorIs(t, err, io.EOF)
	_, err = Receive(strings.NewReader(strings.ToUpper(script)), int64(len(script)), digest)
	require.ErrorIs(t, err, ErrWrongText)
}

func TestAdmit(t *testing.T) {
	header := wire.RunHeader{ID: "a", ScriptSHA256: "aa"}
	cases := map[string]struct {
		header          wire.RunHeader
		before          past
		known, complete bool
		start           bool
		fail            string
	}{
		"a new script is started":                  {header: header, complete: true, start: true},
		"a known one isn't":                        {header: header, before: past{digest: "aa"}, known: true, complete: true},
		"a known one needs no text":                {header: wire.RunHeader{ID: "a"}, before: past{digest: "aa"}, known: true},
		"an unknown one does":                      {header: wire.RunHeader{ID: "a"}, fail: "no script a was started here"},
		"an id means one script":                   {header: header, before: past{digest: "bb"}, known: true, complete: true, fail: "another script was started as a"},
		"what a later one replaced stays replaced": {header: header, before: past{digest: "aa", fate: "it is over"}, known: true, complete: true, fail: "it is over"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			start, failure := admit(c.header, c.before, c.known, c.complete)
			require.Equal(t, c.start, start)
			if c.fail == "" {
				require.Nil(t, failure)
				return
			}
			require.Contains(t, failure.Message, c.fail)
			require.False(t, failure.Retry)
		})
	}
}

func TestSeat(t *testing.T) {
	run := &Run{}
	var evicted []string
	sit := func(number uint64, name string, release *func()) bool {
		r, ok := run.Sit(number, func() {
			evicted = append(evicted, name)
			go (*release)()
		})
		*release = r
		return ok
	}
	var first, second, late func()
	require.True(t, sit(1, "first", &first))
	require.True(t, sit(3, "second", &second))
	require.Equal(t, []string{"first"}, evicted)
	require.False(t, sit(2, "late", &late), "it was admitted before the one that sits")
	require.Equal(t, []string{"first"}, evicted)
	run.seat.vacate()
	require.Equal(t, []string{"first", "second"}, evicted)
	require.False(t, sit(4, "late", &late))
}
