package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/hashicorp/go-multierror"

	"idlecount.dev/idlecount/executor-plugin/job"
	"idlecount.dev/idlecount/pool/claim"
)

// cleanupGrace is what a job's containers get to end, in seconds, unless cleanup_grace_period_seconds says otherwise: the
// scripts are over, but a service may want to hang up on somebody.
const cleanupGrace = 5

// cleanup deletes whatever pods the job has: none where prepare never ran, more than one where it was cut short. What it
// can't delete it names; GitLab Runner goes on all the same.
func cleanup(ctx context.Context, t target, env job.Env, out io.Writer) error {
	id, err := job.ID(env)
	if err != nil {
		return err
	}
	pods, err := claim.FindByJob(ctx, t.client, t.runner, id)
	if err != nil {
		return fmt.Errorf("the pod of job %s, if there is one, stays for now: it ends by itself %s: %w", id, byItself(t), err)
	}
	grace := t.runner.Kubernetes.CleanupGracePeriodSeconds
	if grace == nil {
		grace = new(int64(cleanupGrace))
	}
	var errs *multierror.Error
	for i := range pods {
		if pods[i].DeletionTimestamp != nil {
			continue
		}
		if err := claim.Delete(ctx, t.client, &pods[i], grace); err != nil {
			errs = multierror.Append(errs, fmt.Errorf("%w; it ends by itself %s", err, byItself(t)))
			continue
		}
		if _, err := fmt.Fprintf(out, "idlecount: deleted pod %s/%s of job %s\n", pods[i].Namespace, pods[i].Name, id); err != nil {
			return err
		}
	}
	return errs.ErrorOrNil()
}

func byItself(t target) string {
	return fmt.Sprintf("after %s without a driver, at the latest when the time of its job is over", t.runner.Kubernetes.IdleAbandonTime.Round(time.Second))
}
