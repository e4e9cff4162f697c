package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Repair starts what of the cluster does not work, and returns when all of it does. Unlike Up it never replaces the
// cluster, and needs no checkout.
func (c *Cluster) Repair(ctx context.Context) error {
	return c.locked(ctx, func() error { return c.repair(ctx, io.Discard) })
}

func (c *Cluster) repair(ctx context.Context, progress io.Writer) error {
	if c.healthy(ctx) == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, repairTimeout)
	defer cancel()
	if err := prepareMachine(ctx); err != nil {
		return err
	}
	started := map[Component]bool{}
	for _, component := range c.expected() {
		id, alive := c.alive(component)
		// Controllers come back to watches that failed for long only after minutes; new ones begin at once.
		behind := component == ControllerManager && started[APIServer]
		if alive && !behind && c.check(ctx, component) == nil {
			continue
		}
		started[component] = true
		fmt.Fprintf(progress, "starting %s again\n", component)
		if err := id.Kill(ctx); err != nil { // it may run and not answer
			return err
		}
		if err := c.start(ctx, component); err != nil {
			return err
		}
	}
	return c.waitUsable(ctx)
}

// healthy asks everything at once.
func (c *Cluster) healthy(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, component := range c.expected() {
		group.Go(func() error {
			if _, alive := c.alive(component); !alive {
				return fmt.Errorf("%s does not run", component)
			}
			return c.check(ctx, component)
		})
	}
	group.Go(func() error {
		if !network().InPlace(ctx) {
			return errors.New("addresses or nat rules are gone")
		}
		return nil
	})
	group.Go(func() error { return c.nodeReady(ctx) })
	return group.Wait()
}

func (c *Cluster) nodeReady(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	node, err := client.CoreV1().Nodes().Get(ctx, NodeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if problem := nodeProblem(*node); problem != "" {
		return fmt.Errorf("node %s: %s", NodeName, problem)
	}
	return nil
}

// waitUsable returns when a pod could be created in the default namespace and would be placed on the real node.
func (c *Cluster) waitUsable(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	for {
		err := c.nodeReady(ctx)
		if err == nil {
			// Admission refuses pods until the controller manager has made it.
			_, err = client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		}
		if err == nil {
			return nil
		}
		if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
			return fmt.Errorf("the API server refuses the administrator: %w", err)
		}
		select {
		case <-ctx.Done():
			return c.explain(Kubelet, fmt.Errorf("the node is not ready (%w): %w", context.Cause(ctx), err))
		case <-time.After(healthInterval):
		}
	}
}
