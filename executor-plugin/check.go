package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"idlecount.dev/idlecount/executor-plugin/diagnosis"
	"idlecount.dev/idlecount/executor-plugin/kube"
	"idlecount.dev/idlecount/executor-plugin/stream"
	"idlecount.dev/idlecount/pool/claim"
)

const (
	// checkTimeout bounds a look at the pod: while an API server is away, the next try to connect matters more.
	checkTimeout = 5 * time.Second
	// answerPatience is how long a PID 1 that can't be asked, or can't start a script, is tried: its container may be short of
	// something for a moment.
	answerPatience = 30 * time.Second
	// refusalPatience is how long a clear no to a stream is doubted: an API server that has just started refuses
	// everything until it has read the roles.
	refusalPatience = 15 * time.Second
)

// checker decides, after a stream broke, whether the script can go on.
type checker struct {
	scene
	refused time.Time // since when the answer has been a clear no
}

// check returns the reason for which the script can't go on, or nil where it can or nobody knows.
func (c *checker) check(ctx context.Context, cause error) error {
	look, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	pod, err := c.client.GetOnce(look, c.pod.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) || err == nil && pod.UID != c.pod.UID:
		return errors.New(diagnosis.GoneOf(c.pod.Namespace, c.pod.Name, nil, c.role).Reason)
	case err == nil:
		if end, over := diagnosis.EndOf(pod, c.role); over {
			return errors.New(end.Reason)
		}
	}
	if start, ok := errors.AsType[*kube.StartError](cause); ok && start.Missing && err == nil {
		// It was there when the pod was claimed, and nobody but the job had a way to it since.
		return &jobError{fmt.Errorf("container %s can't start %s any more, so nothing more can be run there: the job has removed it, or what it needs (%s)",
			c.role, start.Command, start.Reason)}
	}
	patience := refusalPatience
	if _, ok := errors.AsType[*stream.AnswerError](cause); ok {
		patience = answerPatience
	} else if !refusal(cause) {
		c.refused = time.Time{}
		return nil
	}
	if c.refused.IsZero() {
		c.refused = time.Now()
	}
	if time.Since(c.refused) > patience {
		return fmt.Errorf("pod %s runs, but its container %s can't be reached: %w", nameOf(c.pod), c.role, cause)
	}
	return nil
}

// refusal tells an answer from a failure to get one.
func refusal(cause error) bool {
	if _, ok := errors.AsType[*kube.ExitError](cause); ok {
		return true // the entrypoint's own words
	}
	if _, ok := errors.AsType[*kube.StartError](cause); ok {
		return true // the container runtime's
	}
	_, answered := errors.AsType[*apierrors.StatusError](cause)
	return answered && !claim.Transient(cause)
}
