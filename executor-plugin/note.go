package main

import (
	"crypto/ed25519"
	"encoding/json"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"idlecount.dev/idlecount/entrypoint/wire"
	"idlecount.dev/idlecount/executor-plugin/job"
)

// A note is what prepare leaves to the parts of the job that follow, so that each is spared a look for its pod, and an exec.
// Of the pod it says nothing that the cluster doesn't: a job's pod stays its pod, and no name is used twice. The key is
// nowhere else. Without a note the pod is looked for, and entered by exec.
type note struct {
	Job       string                    `json:"job"`
	Namespace string                    `json:"namespace"`
	Name      string                    `json:"name"`
	UID       types.UID                 `json:"uid"`
	Key       []byte                    `json:"key,omitempty"` // the seed of the driver's key
	Streams   map[wire.Role]wire.Stream `json:"streams,omitempty"`
}

// notePath is a file in the folder that GitLab Runner makes for one try of one job, "" where there is none.
func notePath(env job.Env) string {
	response := env["JOB_RESPONSE_FILE"]
	if response == "" {
		return ""
	}
	return filepath.Join(filepath.Dir(response), "idlecount-pod.json")
}

// leave writes the note. One that can't be written is not missed.
func leave(env job.Env, id string, pod *corev1.Pod, open doors) {
	path := notePath(env)
	if path == "" {
		return
	}
	n := note{Job: id, Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
	if len(open.streams) > 0 {
		n.Key, n.Streams = open.key.Seed(), open.streams
	}
	data, _ := json.Marshal(n) //nolint:errchkjson // no field of it can fail
	_ = os.WriteFile(path, data, 0o600)
}

// found reads the note; nil where there is none, or not of this job.
func found(env job.Env, id, namespace string) (*corev1.Pod, doors) {
	path := notePath(env)
	if path == "" {
		return nil, doors{}
	}
	data, err := os.ReadFile(path) //nolint:gosec // the path is the runner's
	if err != nil {
		return nil, doors{}
	}
	var n note
	if json.Unmarshal(data, &n) != nil || n.Job != id || n.Namespace != namespace || n.Name == "" || n.UID == "" {
		return nil, doors{}
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: n.Namespace, Name: n.Name, UID: n.UID}}
	if len(n.Key) != ed25519.SeedSize {
		return pod, doors{}
	}
	return pod, doors{key: ed25519.NewKeyFromSeed(n.Key), streams: n.Streams}
}
