package manifests

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"idlecount.dev/idlecount/config"
)

// ManagerConfig is what the manager needs of config.toml files: of each managed runner the keys that the config package
// reads. What could be a credential, of a cache, a registry or another cluster, is left out by naming what stays, and a
// token is cut to the part that names the runner. contents are those of the files that cfg was loaded from, in order; the
// results mean to config.Load what they mean.
func ManagerConfig(cfg *config.Config, contents [][]byte) ([][]byte, error) {
	managed := map[string]bool{}
	var files [][]byte
	for n, content := range contents {
		var root map[string]any
		if err := toml.Unmarshal(content, &root); err != nil {
			return nil, fmt.Errorf("read the configuration again: %w", err)
		}
		runners := []map[string]any{}
		for i, table := range runnerTables(root) {
			kept := keep(table, runnerKeys())
			if kubernetes, ok := kept["kubernetes"].(map[string]any); ok {
				kept["kubernetes"] = keep(kubernetes, kubernetesKeys())
			}
			if flags := flagVariables(kept["environment"]); len(flags) > 0 {
				kept["environment"] = flags
			} else {
				delete(kept, "environment")
			}
			delete(kept, "token")
			name, _ := kept["name"].(string)
			// Runners of the first file are those of cfg by position, those of later files add to them by name.
			if n == 0 {
				r := cfg.Runners[i]
				if !r.Managed() {
					continue
				}
				managed[r.Name] = true
				kept["token"], kept["url"] = r.TokenName(), r.URL
			} else if !managed[name] {
				continue
			} else {
				delete(kept, "url")
			}
			runners = append(runners, kept)
		}
		var b bytes.Buffer
		if err := toml.NewEncoder(&b).Encode(map[string]any{"runners": runners}); err != nil {
			return nil, fmt.Errorf("write the manager's configuration: %w", err)
		}
		files = append(files, b.Bytes())
	}
	return files, nil
}

// flagVariables are those of a runner's environment that the config package looks at. The others are the jobs', and may be
// credentials.
func flagVariables(environment any) []string {
	var flags []string
	list, _ := environment.([]any)
	for _, variable := range list {
		if text, ok := variable.(string); ok && strings.HasPrefix(text, config.FlagPodSpec+"=") {
			flags = append(flags, text)
		}
	}
	return flags
}

func runnerTables(root map[string]any) []map[string]any {
	for key, value := range root {
		if list, ok := value.([]map[string]any); ok && strings.EqualFold(key, "runners") {
			return list
		}
	}
	return nil
}

// keep is a table with these keys only, in whatever case they are spelt, as GitLab Runner and the config package read them.
func keep(table map[string]any, keys []string) map[string]any {
	kept := map[string]any{}
	for key, value := range table {
		for _, k := range keys {
			if strings.EqualFold(k, key) {
				kept[k] = value
			}
		}
	}
	return kept
}

func runnerKeys() []string { return tagsOf(reflect.TypeFor[config.Runner]()) }

// kubernetesKeys leaves out how GitLab Runner reaches the cluster: the manager has a service account.
func kubernetesKeys() []string {
	return slices.DeleteFunc(tagsOf(reflect.TypeFor[config.Kubernetes]()), func(key string) bool {
		return slices.Contains([]string{"host", "context", "cert_file", "key_file", "ca_file"}, key)
	})
}

func tagsOf(t reflect.Type) []string {
	var keys []string
	for field := range t.Fields() {
		if key := field.Tag.Get("toml"); key != "" && key != "-" {
			keys = append(keys, key)
		}
	}
	return keys
}
