package kube

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStartError(t *testing.T) {
	const server = "Internal error occurred: Internal error occurred: error executing command in container: "
	for sentence, test := range map[string]struct {
		words          string
		start, missing bool
	}{
		"containerd with runc, removed": {server + `failed to exec in container: failed to start exec "7e7c": OCI runtime exec failed: exec failed: unable to start container process: exec: "/idlecount/bin/entrypoint": stat /idlecount/bin/entrypoint: no such file or directory`, true, true},
		"no right to run it":            {server + `failed to exec in container: unable to start container process: exec: "/idlecount/bin/entrypoint": permission denied`, true, true},
		"CRI-O with crun, removed":      {server + "error executing command in container: executable file `/idlecount/bin/entrypoint` not found: No such file or directory", true, true},
		"the container stops":           {server + "failed to exec in container: container is in CONTAINER_EXITED state", true, false},
		"something else is missing":     {server + "failed to exec in container: open /run/containerd/x: no such file or directory", true, false},
		"a kubelet that is away":        {"error dialing backend: dial tcp 10.0.0.1:10250: connect: connection refused", false, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			start, ok := startError(errors.New(test.words), "/idlecount/bin/entrypoint")
			require.Equal(t, test.start, ok)
			if ok {
				require.Equal(t, test.missing, start.Missing)
				require.NotContains(t, start.Reason, "Internal error")
			}
		})
	}
}
