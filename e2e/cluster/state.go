package cluster

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"idlecount.dev/idlecount/e2e/cluster/internal/process"
)

// state is cluster.json: what a cluster was made of. Processes have records of their own.
type state struct {
	// Complete is false from the first change of the machine until the cluster was healthy once.
	Complete bool `json:"complete"`
	// Boot is the boot in which the cluster was made: nothing of it survives a reboot.
	Boot string `json:"boot"`
	// Fingerprint of definitions and configuration files.
	Fingerprint string                   `json:"fingerprint"`
	Definitions map[Component]definition `json:"definitions"`
	KWOKNodes   int                      `json:"kwokNodes"`
	// OwnsKubeletFolder says that /var/lib/kubelet was not there before.
	OwnsKubeletFolder bool `json:"ownsKubeletFolder"`
}

// readState returns nil if there is no cluster. A file that can't be understood counts as a cluster that can't be
// kept: it comes from another version.
func readState(l layout) (*state, error) {
	content, err := os.ReadFile(l.state())
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s := &state{}
	if json.Unmarshal(content, s) != nil {
		s = &state{}
	}
	return s, nil
}

func (s *state) write(l layout) error {
	return writeJSON(l.state(), s)
}

// fingerprint is equal for two clusters that run the same programs with the same configuration.
func fingerprint(definitions map[Component]definition, files map[string][]byte) (string, error) {
	hash := sha256.New()
	content, err := json.Marshal(definitions) // sorts the keys
	if err != nil {
		return "", err
	}
	hash.Write(content)
	for _, path := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(hash, "\x00%s\x00%s", path, files[path])
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

func writeRecord(l layout, c Component, id process.Identity) error {
	return writeJSON(l.record(c), id)
}

// readRecord returns the process that was last started for the component; the zero identity, which is never alive, if
// there is none.
func readRecord(l layout, c Component) process.Identity {
	var id process.Identity
	content, err := os.ReadFile(l.record(c))
	if err != nil || json.Unmarshal(content, &id) != nil {
		return process.Identity{}
	}
	return id
}

// writeJSON replaces the file as a whole: who reads it at the same time sees the old or the new content.
func writeJSON(path string, value any) error {
	content, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	partial := path + ".partial"
	if err := os.WriteFile(partial, append(content, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(partial, path)
}
