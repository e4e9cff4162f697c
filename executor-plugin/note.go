package main

import (
	"encoding/json"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"idlecount.dev/idlecount/executor-plugin/job"
)

// A note is what prepare leaves to the parts of the job that follow, so that each is spared a look for its pod. It says
// nothing that the cluster doesn't: a job's pod stays its pod, and no name is used twice. Without it the pod is looked for.
type note struct {
	Job       string    `json:"job"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
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
func leave(env job.Env, id string, pod *corev1.Pod) {
	path := notePath(env)
	if path == "" {
		return
	}
	data, _ := json.Marshal(note{Job: id, Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}) //nolint:errchkjson // no field of it can fail
	_ = os.WriteFile(path, data, 0o600)
}

// found reads the note; nil where there is none, or not of this job.
func found(env job.Env, id, namespace string) *corev1.Pod {
	path := notePath(env)
	if path == "" {
		return nil
	}
	data, err := os.ReadFile(path) //nolint:gosec // the path is the runner's
	if err != nil {
		return nil
	}
	var n note
	if json.Unmarshal(data, &n) != nil || n.Job != id || n.Namespace != namespace || n.Name == "" || n.UID == "" {
		return nil
	}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: n.Namespace, Name: n.Name, UID: n.UID}}
}
