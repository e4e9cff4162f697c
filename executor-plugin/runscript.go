package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"idlecount.dev/idlecount/entrypoint/wire"
	"idlecount.dev/idlecount/executor-plugin/diagnosis"
	"idlecount.dev/idlecount/executor-plugin/job"
	"idlecount.dev/idlecount/executor-plugin/stream"
	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/pool/claim"
)

// placement is the container in which a part of a job runs: where GitLab's kubernetes executor runs it.
func placement(part string) wire.Role {
	if part == "build_script" || part == "after_script" || strings.HasPrefix(part, "step_") {
		return wire.Build
	}
	return wire.Helper
}

// runScript is the run stage: one script, from its first byte of output to its exit code.
func runScript(ctx context.Context, t target, env job.Env, call Call, out io.Writer, cancel <-chan time.Duration) error {
	id, err := job.ID(env)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(call.Script)
	if err != nil {
		return fmt.Errorf("read the script of %s: %w", call.Part, err)
	}
	if len(text) > wire.MaxScript {
		return &jobError{fmt.Errorf("the script of %s has %d bytes, at most %d (%d MiB) can be run", call.Part, len(text), wire.MaxScript, wire.MaxScript>>20)}
	}
	role := placement(call.Part)
	pod, open := found(env, id, t.runner.Kubernetes.Namespace)
	if pod == nil {
		if pod, err = findPod(ctx, t, id, role); err != nil {
			return err
		}
	}
	s := scene{target: t, pod: pod, role: role}
	script := stream.Script{ID: call.Part + "-" + rand.String(8), Text: text}
	way := &reach{
		byPort: func(ctx context.Context, port uint16) (io.ReadWriteCloser, error) {
			return t.client.Forward(ctx, pod.Name, port)
		},
		byExec: func(ctx context.Context) (io.ReadWriteCloser, error) {
			return t.client.Open(ctx, pod.Name, string(role), wire.Binary, wire.CommandRun, "--id", script.ID)
		},
		role: role, run: script.ID, doors: open,
		forget: func() { leave(env, id, pod, doors{}) },
	}
	exit, err := s.follow(ctx, script, way, out, cancel)
	switch {
	case errors.Is(err, stream.ErrCancelled):
		return fmt.Errorf("%s was cancelled: %w", call.Part, err)
	case err != nil:
		return fmt.Errorf("%s could not be run to its end: %w", call.Part, err)
	case exit.Code == 0:
		return nil
	}
	if err := hand(env, exit.Code); err != nil {
		t.say(err.Error())
	}
	return &scriptError{exit.Code}
}

// findPod finds the pod that prepare left to the job.
func findPod(ctx context.Context, t target, id string, role wire.Role) (*corev1.Pod, error) {
	pods, err := claim.FindByJob(ctx, t.client, t.runner, id)
	if err != nil {
		return nil, err
	}
	var ended string
	for i := range pods {
		pod := &pods[i]
		if end, over := diagnosis.EndOf(pod, role); over {
			ended = end.Reason
		} else if factory.ReadySince(pod) != nil || len(pods) == 1 {
			return pod, nil
		}
	}
	if ended != "" {
		return nil, errors.New(ended)
	}
	return nil, fmt.Errorf("job %s has no pod in namespace %s: it was deleted, or the prepare stage didn't run", id, t.runner.Kubernetes.Namespace)
}

// scene is a script in a container of a pod.
type scene struct {
	target
	pod  *corev1.Pod
	role wire.Role
}

// watchAfter is how long a script runs before its pod is watched: most parts of a job are over by then, and the API
// server is spared a watch for each.
const watchAfter = 250 * time.Millisecond

func (s scene) follow(ctx context.Context, script stream.Script, way *reach, out io.Writer, cancel <-chan time.Duration) (wire.Exit, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ends := make(chan stream.End, 1)
	go s.watch(ctx, ends)
	checks := &checker{scene: s}
	return stream.Follow(ctx, script, stream.Options{
		Open:   way.open,
		Output: out,
		Check:  checks.check,
		Ends:   ends,
		Cancel: cancel,
		CancelUnseen: func(ctx context.Context, grace time.Duration) error {
			return s.cancel(ctx, script.ID, grace)
		},
		Notice: s.say,
		Timing: stream.DefaultTiming(s.runner.Kubernetes.IdleAbandonTime.Duration),
	})
}

// watch tells what becomes of the pod while the script runs.
func (s scene) watch(ctx context.Context, ends chan<- stream.End) {
	select {
	case <-time.After(watchAfter):
	case <-ctx.Done():
		return
	}
	var told diagnosis.End
	// An error leaves the script to its stream: a pod that is asked for in vain is no reason to end a job.
	_ = s.client.WatchPod(ctx, s.pod, func(now *corev1.Pod, gone bool) (more bool) {
		end, over := diagnosis.End{}, false
		if gone {
			end, over = diagnosis.GoneOf(s.pod.Namespace, s.pod.Name, now, s.role), true
		} else {
			end, over = diagnosis.EndOf(now, s.role)
		}
		if over && (told.Reason == "" || end.Gone) {
			told = end
			select {
			case ends <- stream.End(end):
			case <-ctx.Done():
			}
		}
		return !end.Gone
	})
}

// cancel ends a run of which nothing was heard.
func (s scene) cancel(ctx context.Context, id string, grace time.Duration) error {
	ctx, stop := context.WithTimeout(ctx, handshakeTimeout)
	defer stop()
	conn, err := s.client.Open(ctx, s.pod.Name, string(s.role), wire.Binary, wire.CommandCancel, "--id", id, "--grace", grace.String())
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = io.Copy(io.Discard, conn)
	return err
}
