package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"idlecount.dev/idlecount/entrypoint/proof"
	"idlecount.dev/idlecount/entrypoint/wire"
	"idlecount.dev/idlecount/executor-plugin/job"
)

func TestANoteIsBelievedByTheJobThatWroteItOnly(t *testing.T) {
	env := job.Env{"JOB_RESPONSE_FILE": filepath.Join(t.TempDir(), "response.json")}
	missing := func(env job.Env, id, namespace, why string) {
		t.Helper()
		pod, open := found(env, id, namespace)
		require.Nil(t, pod, why)
		require.Zero(t, open, why)
	}
	missing(env, "7", "ci", "there is none yet")
	key, err := proof.NewKey()
	require.NoError(t, err)
	streams := map[wire.Role]wire.Stream{wire.Build: {Port: 40001, Key: "0a"}}
	leave(env, "7", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "p", UID: "u"}}, doors{key, streams})
	pod, open := found(env, "7", "ci")
	require.NotNil(t, pod)
	require.Equal(t, "p", pod.Name)
	require.EqualValues(t, "u", pod.UID)
	require.Equal(t, doors{key, streams}, open)
	info, err := os.Stat(notePath(env))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode(), "the key is in it")
	missing(env, "8", "ci", "of another job")
	missing(env, "7", "other", "of another namespace")

	leave(env, "7", pod, doors{})
	pod, open = found(env, "7", "ci")
	require.NotNil(t, pod)
	require.Zero(t, open, "a door that didn't open is forgotten")
	require.NoError(t, os.WriteFile(notePath(env), []byte(`{"job":"7","namespace":"ci"`), 0o600))
	missing(env, "7", "ci", "cut")
	missing(nil, "7", "ci", "a runner without a folder for the job")
	leave(nil, "7", pod, open)
}
