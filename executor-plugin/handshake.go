package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"idlecount.dev/idlecount/entrypoint/proof"
	"idlecount.dev/idlecount/entrypoint/wire"
	"idlecount.dev/idlecount/executor-plugin/diagnosis"
	"idlecount.dev/idlecount/executor-plugin/kube"
	"idlecount.dev/idlecount/pool/claim"
)

// outcome is what came of a handshake.
type outcome int

const (
	shaken         outcome = iota // the pod knows its job
	expired                       // its idle timer was first
	belongsToOther                // another job's handshake was first
	unusable                      // it has ended, or can't answer
	noShell                       // it knows its job, and can't run a script
)

type handshakeResult struct {
	outcome outcome
	why     string                    // of unusable
	streams map[wire.Role]wire.Stream // of shaken: where the pod can be entered without an exec
}

func (w want) noShell() error {
	return &jobError{fmt.Errorf("image %s has no shell: the scripts of a job need bash or sh, in PATH or in one of the usual places", w.shape.Image)}
}

const (
	// handshakeTimeout bounds one try.
	handshakeTimeout = 30 * time.Second
	// handshakePatience is how long a pod may fail to answer while the API server says that it runs.
	handshakePatience = 15 * time.Second
)

// handshake tells the pod which job it belongs to. An error means that nobody could be asked.
func (w want) handshake(ctx context.Context, pod *corev1.Pod) (handshakeResult, error) {
	begin := time.Now()
	for n := 0; ; n++ {
		result, err := w.shake(ctx, pod)
		if err == nil {
			return result, nil
		}
		if ctx.Err() != nil {
			return handshakeResult{}, context.Cause(ctx)
		}
		if n == 0 && claim.Transient(err) {
			continue // one broken connection says nothing
		}
		now, getErr := w.client.Get(ctx, pod.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(getErr) || getErr == nil && now.UID != pod.UID:
			return handshakeResult{outcome: unusable, why: "it is gone"}, nil
		case getErr != nil:
			return handshakeResult{}, fmt.Errorf("shake hands with pod %s: %w", nameOf(pod), getErr)
		}
		if end, ended := diagnosis.EndOf(now, wire.Build); ended {
			return handshakeResult{outcome: unusable, why: end.Reason}, nil
		}
		if apierrors.IsForbidden(err) || time.Since(begin) > handshakePatience {
			return handshakeResult{}, fmt.Errorf("shake hands with pod %s: %w", nameOf(pod), err)
		}
		select {
		case <-time.After(min(100*time.Millisecond<<n, 2*time.Second)):
		case <-ctx.Done():
			return handshakeResult{}, context.Cause(ctx)
		}
	}
}

// shake makes one try.
func (w want) shake(ctx context.Context, pod *corev1.Pod) (handshakeResult, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	id := w.job.Meta.ID
	command := []string{wire.Binary, wire.CommandClaim, "--job", id}
	if exposed(&pod.Spec) == "" {
		command = append(command, "--key", proof.Text(proof.Public(w.key)))
	}
	conn, err := w.client.Open(ctx, pod.Name, string(wire.Build), command...)
	if err != nil {
		return handshakeResult{}, err
	}
	defer conn.Close()
	answer, err := io.ReadAll(io.LimitReader(conn, 4096))
	exit, exited := errors.AsType[*kube.ExitError](err)
	if err != nil && !exited {
		return handshakeResult{}, err
	}
	if exited {
		switch exit.Code {
		case wire.ExitExpired:
			return handshakeResult{outcome: expired}, nil
		case wire.ExitOther:
			return handshakeResult{outcome: belongsToOther}, nil
		default:
			return handshakeResult{outcome: unusable, why: exit.Error()}, nil
		}
	}
	var claimed wire.ClaimResult
	if err := json.Unmarshal(answer, &claimed); err != nil {
		return handshakeResult{outcome: unusable, why: "its entrypoint answers with something else than JSON"}, nil
	}
	if claimed.Protocol != wire.Protocol || claimed.Job != id {
		return handshakeResult{outcome: unusable, why: fmt.Sprintf("its entrypoint speaks protocol %d for job %q", claimed.Protocol, claimed.Job)}, nil
	}
	if claimed.Shell == "" {
		return handshakeResult{outcome: noShell}, nil
	}
	return handshakeResult{outcome: shaken, streams: claimed.Streams}, nil
}
