package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"idlecount.dev/idlecount/e2e/cluster/internal/host"
	"idlecount.dev/idlecount/e2e/cluster/internal/process"
)

// stopGrace is how long a component may take to end after SIGTERM. Only the API server needs longer: it refuses new
// connections at once, but lets streams in flight go on for a minute.
const stopGrace = 5 * time.Second

// Stop ends a component with SIGTERM, and with SIGKILL if that takes longer than 5 seconds, which it does if exec
// streams run through the API server. A component that does not run is not an error. Containers go on when containerd
// or the kubelet stop.
func (c *Cluster) Stop(ctx context.Context, component Component) error {
	return c.locked(ctx, func() error {
		return readRecord(c.layout, component).Stop(ctx, stopGrace)
	})
}

// Kill ends a component with SIGKILL.
func (c *Cluster) Kill(ctx context.Context, component Component) error {
	return c.locked(ctx, func() error {
		return readRecord(c.layout, component).Kill(ctx)
	})
}

// Start starts a component that was stopped and returns when it is healthy. One that runs is only waited for.
func (c *Cluster) Start(ctx context.Context, component Component) error {
	return c.locked(ctx, func() error {
		return c.start(ctx, component)
	})
}

// Restart stops a component as Stop does, starts it and returns when it is healthy again. A healthy kubelet may need
// another moment until it knows its pods: exec fails with "pod does not exist" until then.
func (c *Cluster) Restart(ctx context.Context, component Component) error {
	return c.locked(ctx, func() error {
		if err := readRecord(c.layout, component).Stop(ctx, stopGrace); err != nil {
			return fmt.Errorf("stop %s: %w", component, err)
		}
		return c.start(ctx, component)
	})
}

// CutConnections resets all established connections to the API server, those of the cluster's own components too, and
// returns how many there were. New ones work at once.
func (c *Cluster) CutConnections(ctx context.Context) (int, error) {
	count, err := host.ResetConnections(ctx, apiAddress)
	if err != nil {
		return 0, fmt.Errorf("reset the connections to %s: %w", APIServer, err)
	}
	if count == 0 {
		// The kubelet alone keeps some, so this means that nothing was done.
		return 0, errors.New("no connection to the API server was reset: the kernel lacks CONFIG_INET_DIAG_DESTROY, or nothing runs")
	}
	return count, nil
}

// WaitHealthy returns when all the components are healthy, or all that should run if none is named.
func (c *Cluster) WaitHealthy(ctx context.Context, components ...Component) error {
	if len(components) == 0 {
		components = c.expected()
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, component := range components {
		group.Go(func() error { return c.waitHealthy(ctx, component) })
	}
	return group.Wait()
}

func (c *Cluster) locked(ctx context.Context, change func() error) error {
	release, err := lockCluster(ctx, io.Discard)
	if err != nil {
		return err
	}
	defer release()
	return change()
}

// expected returns the components that run when all is well.
func (c *Cluster) expected() []Component {
	s, err := readState(c.layout)
	if err == nil && s != nil && s.KWOKNodes > 0 {
		return Components()
	}
	return slices.DeleteFunc(Components(), func(component Component) bool { return component == KWOK })
}

// start starts the component unless it runs, and waits until it is healthy. The caller holds the lock.
func (c *Cluster) start(ctx context.Context, component Component) error {
	if _, alive := c.alive(component); !alive {
		definition, ok := c.definitions[component]
		if !ok {
			return fmt.Errorf("the cluster in %s has no %s: replace it", c.layout.folder, component)
		}
		for _, address := range definition.Listens {
			if err := mustBeFree(ctx, component, address); err != nil {
				return err
			}
		}
		id, err := process.Start(process.Command{
			Path: definition.Program,
			Args: definition.Args,
			Env:  definition.Env,
			Log:  c.layout.log(component),
		})
		if err != nil {
			return err
		}
		if err := writeRecord(c.layout, component, id); err != nil {
			return errors.Join(err, id.Kill(ctx)) // nobody would find it again
		}
	}
	return c.waitHealthy(ctx, component)
}

// mustBeFree fails if something else listens on the address: the component would die with a message that only its log
// has. It connects rather than listens: a listener of ours could live on for a moment in a process that is being
// started at the same time, and be in the way itself.
func mustBeFree(ctx context.Context, component Component, address string) error {
	connection, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", address)
	if err == nil { // somebody answers
		return errors.Join(
			fmt.Errorf("%s needs the address %s, which %s has", component, address, host.Listener(ctx, port(address))),
			connection.Close(),
		)
	}
	return nil
}
