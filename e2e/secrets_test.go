package e2e_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"idlecount.dev/idlecount/e2e/images"
	"idlecount.dev/idlecount/e2e/runner"
)

// Whatever a job may keep secret must be seen by its script, and by nobody else.
func TestSecretsAreNowhereButInTheScript(t *testing.T) {
	t.Parallel()
	s := newSite(t, settings{"idle_count": 1, "pod_annotations": settings{"example.com/project": "$CI_PROJECT_PATH", "example.com/password": "$PASSWORD"}})
	m := s.startManager()
	s.untilIdle(1)
	secrets := map[string]string{"PASSWORD": "hunter2-masked", "MULTI": "line-one-secret\nline-two-secret", "KEYFILE": "file-secret-content"}
	for sentence, job := range map[string]runner.Job{
		"warm": {}, "cold": {Image: s.ref(images.JobBusybox), Services: []runner.Service{{Name: s.ref(images.Service)}}},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := s.with(t)
			diagnostics := &syncBuffer{}
			s.runner.Diagnostics = diagnostics
			s.runner.TempDir = t.TempDir()
			job.ID, job.Token = nextID(), "glcbt-64_the-token-of-the-job"
			job.Variables = []runner.Variable{
				{Key: "PASSWORD", Value: secrets["PASSWORD"], Masked: true},
				{Key: "MULTI", Value: secrets["MULTI"]},
				{Key: "KEYFILE", Value: secrets["KEYFILE"], File: true, Masked: true},
			}
			job.Script = []string{`printf %s "$PASSWORD" | sha256sum`, "echo running; while [ ! -e go ]; do sleep 0.1; done"}
			job.AfterScript = []string{"echo after"}
			var seen string
			var driverKey []byte
			result := s.runWhile(job, "\nrunning", func(context.CancelCauseFunc) error {
				visible, err := s.everythingVisible()
				seen = visible + "\n" + allArguments()
				key, keyErr := keyOfTheDriver(s.runner.TempDir)
				driverKey = key
				return errors.Join(err, keyErr, s.goOn(job.ID))
			})
			afterwards, err := s.everythingVisible()
			require.NoError(t, err)
			require.Equal(t, runner.Success, result.Status, "%s", result.Log)
			for where, text := range map[string]string{
				"the API or a command line": seen,
				"the job's log":             string(result.Log),
				"GitLab Runner's log":       diagnostics.String(),
				"the manager's log":         m.log.String(),
				"events after the job":      afterwards,
			} {
				for _, secret := range append(strings.Split(secrets["MULTI"], "\n"), secrets["PASSWORD"], secrets["KEYFILE"], job.Token, s.runner.Token) {
					require.NotContains(t, text, secret, where)
					require.NotContains(t, text, base64.StdEncoding.EncodeToString([]byte(secret)), where)
				}
				require.NotContains(t, text, hex.EncodeToString(driverKey), where)
				require.NotContains(t, text, base64.StdEncoding.EncodeToString(driverKey), where)
			}
			require.Contains(t, seen, `"idlecount.dev/job":`, "the test looks at what there is")
			require.Contains(t, seen, "idlecount-executor", "the test looks at what runs")
		})
	}
}

// keyOfTheDriver reads the key that opens the streams of the only job that runs, from the note that its driver has left.
func keyOfTheDriver(folder string) ([]byte, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*", "idlecount-pod.json"))
	if err != nil || len(files) != 1 {
		return nil, fmt.Errorf("one note of a driver is looked for, %v found: %w", files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		return nil, err
	}
	var note struct {
		Key []byte `json:"key"`
	}
	if err := json.Unmarshal(text, &note); err != nil {
		return nil, err
	}
	if len(note.Key) != 32 {
		return nil, fmt.Errorf("the driver's key has %d bytes: was the job reached by exec?", len(note.Key))
	}
	return note.Key, nil
}

// everythingVisible is all that who may look into the namespace sees, but for Secrets, which are for secrets.
func (s *site) everythingVisible() (string, error) {
	core := s.client.CoreV1()
	ctx := s.t.Context()
	pods, podsErr := core.Pods(s.namespace).List(ctx, metav1.ListOptions{})
	events, eventsErr := core.Events(s.namespace).List(ctx, metav1.ListOptions{})
	maps, mapsErr := core.ConfigMaps(s.namespace).List(ctx, metav1.ListOptions{})
	if err := errors.Join(podsErr, eventsErr, mapsErr); err != nil {
		return "", err
	}
	text, err := json.Marshal([]any{pods, events, maps})
	return string(text), err
}

// allArguments are the command lines of all processes: everybody on a machine sees them, and pods of the local cluster
// are processes of this machine.
func allArguments() string {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	var text strings.Builder
	for _, file := range files {
		// A process may have ended since.
		if line, err := os.ReadFile(file); err == nil {
			text.Write(bytes.ReplaceAll(line, []byte{0}, []byte{' '}))
			text.WriteByte('\n')
		}
	}
	return text.String()
}
