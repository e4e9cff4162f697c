package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"k8s.io/client-go/kubernetes"

	"idlecount.dev/idlecount/e2e/chaos/fleet"
	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/pool/claim"
)

// Jobs are drivers at work: each claims a pod of a random pool as idlecount-executor does, holds it for a while, and deletes it.
type Jobs struct {
	Client  kubernetes.Interface
	Checker *Checker
	Pools   []fleet.Pool
	Last    time.Duration // jobs last up to this

	ids, Claimed, None, Conflicts atomic.Int64
}

// Run runs one job after another until stop ends; the last one is then ended, its pod deleted. An error is something that
// no driver would get over.
func (j *Jobs) Run(ctx context.Context, stop <-chan struct{}, random *rand.Rand) error {
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		if err := j.one(ctx, stop, random); err != nil {
			return err
		}
	}
}

func (j *Jobs) one(ctx context.Context, stop <-chan struct{}, random *rand.Rand) error {
	pool := j.Pools[random.IntN(len(j.Pools))]
	id := fmt.Sprint(j.ids.Add(1))
	pods := j.Client.CoreV1().Pods(pool.Namespace)
	request := claim.Request{Runner: pool.Runner, Shape: pool.Shape, Job: factory.JobMeta{ID: id, Timeout: time.Hour}}
	claimed, err := claim.Claim(ctx, pods, request)
	if errors.Is(err, claim.ErrNoneIdle) {
		j.None.Add(1)
		pause(stop, upTo(random, j.Last))
		return nil // a driver would make a pod of its own
	}
	if err != nil {
		return fmt.Errorf("job %s: %w", id, err)
	}
	j.Claimed.Add(1)
	j.Conflicts.Add(int64(claimed.Conflicts))
	j.Checker.Given(claimed.Pod, id, time.Now())
	if random.IntN(10) == 0 { // GitLab Runner calls prepare again
		again, err := claim.Claim(ctx, pods, request)
		if err != nil {
			return fmt.Errorf("job %s claims again: %w", id, err)
		}
		if again.Pod.UID != claimed.Pod.UID {
			return fmt.Errorf("job %s claims again, and gets pod %s instead of %s", id, again.Pod.Name, claimed.Pod.Name)
		}
	}
	pause(stop, upTo(random, j.Last))
	j.Checker.Leaving(claimed.Pod.UID)
	if err := claim.Delete(ctx, pods, claimed.Pod, nil); err != nil {
		return fmt.Errorf("job %s: %w", id, err)
	}
	return nil
}

func upTo(random *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(random.Int64N(int64(d) + 1))
}

// pause lets a time pass, or less where stop ends.
func pause(stop <-chan struct{}, d time.Duration) {
	select {
	case <-time.After(d):
	case <-stop:
	}
}
