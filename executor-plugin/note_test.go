package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"idlecount.dev/idlecount/executor-plugin/job"
)

func TestANoteIsBelievedByTheJobThatWroteItOnly(t *testing.T) {
	env := job.Env{"JOB_RESPONSE_FILE": filepath.Join(t.TempDir(), "response.json")}
	require.Nil(t, found(env, "7", "ci"), "there is none yet")
	leave(env, "7", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "p", UID: "u"}})
	pod := found(env, "7", "ci")
	require.NotNil(t, pod)
	require.Equal(t, "p", pod.Name)
	require.EqualValues(t, "u", pod.UID)
	require.Nil(t, found(env, "8", "ci"), "of another job")
	require.Nil(t, found(env, "7", "other"), "of another namespace")
	require.NoError(t, os.WriteFile(notePath(env), []byte(`{"job":"7","namespace":"ci"`), 0o600))
	require.Nil(t, found(env, "7", "ci"), "cut")
	require.Nil(t, found(nil, "7", "ci"), "a runner without a folder for the job")
	leave(nil, "7", pod)
}
