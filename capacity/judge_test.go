package capacity_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/capacity"
	"idlecount.dev/idlecount/config"
)

// patchedRoom is a config.toml of a runner with room for the jobs of GitLab's own executor, whose pods are patched.
func patchedRoom(flag, kind, patch string) string {
	return `
[[runners]]
  name = "ci"
  url = "https://gitlab.example.com"
  token = "glrt-abcdefghijklmnopqrst"
  executor = "kubernetes"
  ` + flag + `
  [runners.kubernetes]
    cpu_request = "1"
    idle_strategy = "pause"
    idle_count = 3
    [[runners.kubernetes.pod_spec]]
      patch_type = "` + kind + `"
      patch = '''` + patch + `'''
    [[runners.kubernetes.idle_image]]
      image = "big:1"
      cpu_request = "8"
`
}

const flagOn = `feature_flags = {FF_USE_ADVANCED_POD_SPEC_CONFIGURATION = true}`

// TestWhatAPatchMayDo: a file with a patch that can't be applied is no configuration, and one that does nothing has a warning.
func TestWhatAPatchMayDo(t *testing.T) {
	for sentence, c := range map[string]struct{ flag, kind, patch, wrong, warning string }{
		"what a pod has":                      {flagOn, "", "{nodeSelector: {a: b}, containers: [{name: build, resources: {limits: {example.com/gpu: 1}}}]}", "", ""},
		"a container of one's own":            {flagOn, "", "containers: [{name: mine, image: mine:1}]", "", ""},
		"a service of GitLab's":               {flagOn, "merge", "{hostNetwork: true}", "", ""},
		"no YAML":                             {flagOn, "", "{", "is neither YAML nor JSON", ""},
		"not what the pod has":                {flagOn, "json", "[{op: remove, path: /none}]", "can't be applied to the pod of a job", ""},
		"no pod":                              {flagOn, "", "nodeSelector: 5", "makes no pod of the pod of a job", ""},
		"a field that no pod has":             {flagOn, "", "nodeSelectr: {a: b}", "", `sets what no pod has: unknown field "nodeSelectr"`},
		"a container that no job has":         {flagOn, "", "containers: [{name: biuld, resources: {limits: {a.b/c: 1}}}]", "", `makes a container "biuld" without an image: those of a job are build, helper`},
		"nothing, since the flag is off":      {"", "", "{", "", "GitLab Runner does that only with a feature flag; set FF_USE_ADVANCED_POD_SPEC_CONFIGURATION = true in [runners.feature_flags]"},
		"nothing, since a flag of another is": {`environment = ["FF_USE_ADVANCED_POD_SPEC_CONFIGURATION=0"]`, "", "{", "", "GitLab Runner does that only with a feature flag"},
	} {
		t.Run(sentence, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.toml")
			require.NoError(t, os.WriteFile(path, []byte(patchedRoom(c.flag, c.kind, c.patch)), 0o600))
			cfg, err := config.Load([]string{path}, capacity.Judge)
			if c.wrong != "" {
				require.ErrorContains(t, err, path+": runners[0].kubernetes.pod_spec[0].patch: "+c.wrong)
				require.Len(t, config.Problems(err), 1, "once, though two capacities have it")
				return
			}
			require.NoError(t, err)
			var warnings []string
			for _, w := range cfg.Warnings {
				if strings.Contains(w.Path, "pod_spec") {
					warnings = append(warnings, w.Error())
				}
			}
			if c.warning == "" {
				require.Empty(t, warnings)
				return
			}
			require.Len(t, warnings, 1)
			require.Contains(t, warnings[0], path+": runners[0].kubernetes.pod_spec")
			require.Contains(t, warnings[0], c.warning)
		})
	}
}
