package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilrand "k8s.io/apimachinery/pkg/util/rand"

	"idlecount.dev/idlecount/e2e/chaos/fleet"
	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/pool/claim"
)

const (
	// parallel is how many plain creates are under way at a time: as many as the manager's.
	parallel = 32
	// claimers is how many jobs claim at a time.
	claimers = 50
)

// fill fills the pools in rounds: plain creates, whose pods are deleted again, then as many by the manager, which gets more
// pools by its file. So both meet the same machine, the one as soon as the other.
func (b *bench) fill(ctx context.Context, f *figures) error {
	per := b.size.pods() / b.size.rounds
	for round := range b.size.rounds {
		begin := time.Now()
		if err := b.plain(ctx, per); err != nil {
			return err
		}
		f.bare = append(f.bare, rateOf(b.barePods.since(begin)))
		if err := b.deletePods(ctx, b.bare); err != nil {
			return err
		}
		if err := b.barePods.await(ctx, 0, 0); err != nil {
			return fmt.Errorf("delete the pods of plain creates: %w", err)
		}

		begin = time.Now()
		b.pools.Images += b.size.pools / b.size.rounds
		if err := fleet.Write(b.command.Config, []fleet.Runner{b.pools}); err != nil {
			return err
		}
		if b.manager == nil {
			var err error
			if b.manager, err = b.command.Start(); err != nil {
				return err
			}
		}
		if err := b.pods.await(ctx, b.pools.Pods(), 0); err != nil {
			return err
		}
		f.manager = append(f.manager, rateOf(b.pods.since(begin)))
		progress("round %d of %d: plain %.0f pods/s created, %.0f ready; manager %.0f, %.0f", round+1, b.size.rounds,
			f.bare[round].createdPerSecond(), f.bare[round].readyPerSecond(), f.manager[round].createdPerSecond(), f.manager[round].readyPerSecond())
	}
	return nil
}

// plain creates pods such as the manager's, as plainly as can be, and waits until they are ready.
func (b *bench) plain(ctx context.Context, n int) error {
	pool, anchor, err := b.plainPool(ctx)
	if err != nil {
		return err
	}
	group, creating := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for range n {
		pod := factory.IdlePod(pool.Runner, pool.Shape, factory.PodName(pool.Name, utilrand.String(8)), b.pools.IdleTime, anchor)
		group.Go(func() error {
			_, err := b.client.CoreV1().Pods(b.bare).Create(creating, pod, metav1.CreateOptions{})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return b.barePods.await(ctx, n, 0)
}

// plainPool is a pool in the namespace of plain creates, where no manager is, and the anchor that owns its pods.
func (b *bench) plainPool(ctx context.Context) (fleet.Pool, factory.Owner, error) {
	file := filepath.Join(b.folder, "plain.toml")
	like := b.pools
	like.Namespace, like.Images = b.bare, 1
	if err := fleet.Write(file, []fleet.Runner{like}); err != nil {
		return fleet.Pool{}, factory.Owner{}, err
	}
	pools, err := fleet.Pools(file)
	if err != nil {
		return fleet.Pool{}, factory.Owner{}, err
	}
	anchors := b.client.CoreV1().ConfigMaps(b.bare)
	anchor, err := anchors.Create(ctx, factory.Anchor(pools[0].Runner, pools[0].Shape), metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		anchor, err = anchors.Get(ctx, pools[0].Name, metav1.GetOptions{})
	}
	if err != nil {
		return fleet.Pool{}, factory.Owner{}, err
	}
	return pools[0], factory.Owner{Name: anchor.Name, UID: anchor.UID}, nil
}

// refill claims pods in a burst, notes when they were replaced, and ends the jobs.
func (b *bench) refill(ctx context.Context, f *figures) error {
	progress("%d claims", b.size.burst)
	pools, err := fleet.Pools(b.command.Config)
	if err != nil {
		return err
	}
	begin := time.Now()
	claimed := make([]claim.Claimed, b.size.burst)
	group, claiming := errgroup.WithContext(ctx)
	group.SetLimit(claimers)
	for i := range claimed {
		pool := pools[rand.IntN(len(pools))]
		group.Go(func() (err error) {
			claimed[i], err = claim.Claim(claiming, b.client.CoreV1().Pods(pool.Namespace), claim.Request{
				Runner: pool.Runner, Shape: pool.Shape, Job: factory.JobMeta{ID: fmt.Sprint(i), Timeout: time.Hour},
			})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	f.burst = time.Since(begin)
	if err := b.pods.await(ctx, b.size.pods(), b.size.burst); err != nil {
		return err
	}
	if f.created, f.ready, err = lags(b.pods.claimedSince(begin), b.pods.since(begin)); err != nil {
		return err
	}
	for _, c := range claimed {
		if err := b.client.CoreV1().Pods(c.Pod.Namespace).Delete(ctx, c.Pod.Name, metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	return b.pods.await(ctx, b.size.pods(), 0)
}
