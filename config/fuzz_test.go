package config

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzLoad: whatever is in two files, they load or are refused with problems, the same each time, and what was found
// valid can be used.
func FuzzLoad(f *testing.F) {
	paths, err := filepath.Glob("testdata/*.toml")
	require.NoError(f, err)
	require.NotEmpty(f, paths)
	var before []byte
	for _, path := range paths {
		data, err := os.ReadFile(path)
		require.NoError(f, err)
		f.Add(data, []byte(nil))
		f.Add(before, data)
		before = data
	}
	f.Add([]byte("[[runners]]\nkubernetes = []\n"), []byte("[[runners]]\nname = 1\n"))
	f.Add([]byte("runners = [{kubernetes = {services = [{}, {name = []}]}}]"), []byte("runners = [1]"))
	f.Add([]byte("[runners]\n"), []byte("[[Runners]]\n[[runners]]\n"))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		files := []file{{"a.toml", first}}
		if len(second) > 0 {
			files = append(files, file{"b.toml", second})
		}
		cfg, err := load(files, environment)
		again, errAgain := load(files, environment)
		if err != nil {
			require.Nil(t, cfg)
			require.NotEmpty(t, Problems(err))
			for _, p := range Problems(err) {
				require.NotEmpty(t, p.File)
				require.NotEmpty(t, p.Message)
			}
			require.EqualError(t, errAgain, err.Error())
			return
		}
		require.Equal(t, cfg.Warnings, again.Warnings)
		for _, r := range cfg.Runners {
			if !r.Managed() {
				continue
			}
			for _, image := range append(r.IdleImages(), "") {
				schedule, err := r.ScheduleFor(image)
				require.NoError(t, err)
				require.GreaterOrEqual(t, schedule.Default.IdleCount, 0)
				count, factor := r.wants(image)
				require.False(t, r.KeepsPods() && (count > 0 || factor > 0) && len(r.IdleImages()) == 0)
				require.Equal(t, r.ForImage(image), r.ForImage(image).ForImage(image))
			}
		}
	})
}
