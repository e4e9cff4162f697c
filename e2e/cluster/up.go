package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"idlecount.dev/idlecount/e2e/cluster/internal/process"
)

const (
	// createTimeout bounds the start of a cluster whose programs are built.
	createTimeout = 3 * time.Minute
	// repairTimeout bounds the attempt to keep a cluster before it is replaced.
	repairTimeout = time.Minute
)

// Up returns a healthy cluster. One that runs is kept if it is made of the programs and the configuration of this
// checkout, repaired if a part of it died, and replaced if neither is possible.
//
// It needs Linux and root, and installs missing Debian packages with apt-get where it can.
func Up(ctx context.Context, options Options) (*Cluster, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("the local cluster needs root (it makes cgroups, mounts and network interfaces): run this as root, for example with sudo")
	}
	if n := options.KWOKNodes; n != nil && *n < 0 {
		return nil, fmt.Errorf("%d KWOK nodes: the number can't be negative", *n)
	}
	l, progress := options.layout(), options.progress()
	release, err := lockCluster(ctx, progress)
	if err != nil {
		return nil, err
	}
	defer release()
	if folder, err := owner(); err != nil {
		return nil, err
	} else if folder != "" && folder != l.folder {
		return nil, fmt.Errorf("this machine has a local cluster in %s already and can have only one: use that, or take it down first", folder)
	}
	wanted, err := newBlueprint(ctx, l, progress)
	if err != nil {
		return nil, err
	}
	c, err := wanted.upKeeping(ctx, progress)
	if err != nil {
		return nil, err
	}
	return c, wanted.upKWOK(ctx, c, options.KWOKNodes, progress)
}

// upKeeping keeps, repairs, replaces or creates the cluster.
func (b *blueprint) upKeeping(ctx context.Context, progress io.Writer) (*Cluster, error) {
	c, s, err := load(b.layout)
	if err != nil {
		return nil, err
	}
	boot, err := process.BootID()
	if err != nil {
		return nil, err
	}
	if s == nil {
		return b.create(ctx, boot, 0, progress)
	}
	reason := replaceReason(*s, boot, b.fingerprint)
	if reason == "" {
		err := c.repair(ctx, progress)
		if err == nil || ctx.Err() != nil {
			return c, err
		}
		reason = fmt.Sprintf("it could not be repaired (%v)", err)
	}
	fmt.Fprintf(progress, "replacing the local cluster: %s\n", reason)
	return b.create(ctx, boot, s.KWOKNodes, progress)
}

// replaceReason says why a cluster can't be kept, "" if it can.
func replaceReason(s state, boot, fingerprint string) string {
	switch {
	case !s.Complete:
		return "its creation was interrupted"
	case s.Boot != boot:
		return "the machine was restarted"
	case s.Fingerprint != fingerprint:
		return "it was made by another version of idlecount"
	}
	return ""
}

// create makes a new cluster after it has removed what is left of an earlier one.
func (b *blueprint) create(ctx context.Context, boot string, kwokNodes int, progress io.Writer) (*Cluster, error) {
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	begin := time.Now()
	if err := tearDown(ctx, b.layout); err != nil {
		return nil, fmt.Errorf("remove what an earlier cluster left: %w", err)
	}
	fmt.Fprintln(progress, "starting the local cluster…")
	s := &state{Boot: boot, Fingerprint: b.fingerprint, Definitions: b.definitions, OwnsKubeletFolder: !exists(kubeletFolder)}
	if err := os.MkdirAll(b.layout.folder, 0o755); err != nil {
		return nil, err
	}
	if err := s.write(b.layout); err != nil {
		return nil, err
	}
	if err := os.WriteFile(ownerFile(), []byte(b.layout.folder+"\n"), 0o644); err != nil {
		return nil, err
	}
	if err := writeCredentials(b.layout, time.Now()); err != nil {
		return nil, err
	}
	if err := writeFiles(b.files); err != nil {
		return nil, err
	}
	if err := prepareMachine(ctx); err != nil {
		return nil, err
	}
	c := &Cluster{layout: b.layout, definitions: b.definitions}
	if err := b.startAll(ctx, c); err != nil {
		return nil, err
	}
	s.Complete, s.KWOKNodes = true, 0
	if err := s.write(b.layout); err != nil {
		return nil, err
	}
	fmt.Fprintf(progress, "the local cluster is up after %s\n", time.Since(begin).Round(100*time.Millisecond))
	if kwokNodes > 0 {
		return c, b.upKWOK(ctx, c, &kwokNodes, progress)
	}
	return c, nil
}

func prepareMachine(ctx context.Context) error {
	if err := network().Setup(ctx); err != nil {
		return err
	}
	return cgroup().Create()
}

// startAll starts each component as soon as what it needs is healthy.
func (b *blueprint) startAll(ctx context.Context, c *Cluster) error {
	group, groupCtx := errgroup.WithContext(ctx)
	healthy := map[Component]chan struct{}{}
	for _, component := range c.expected() {
		healthy[component] = make(chan struct{})
	}
	for _, component := range c.expected() {
		group.Go(func() error {
			for _, need := range component.needs() {
				select {
				case <-healthy[need]:
				case <-groupCtx.Done():
					return context.Cause(groupCtx) // the component that failed says why
				}
			}
			if err := c.start(groupCtx, component); err != nil {
				return err
			}
			if component == Containerd {
				if err := c.importSandboxImage(groupCtx, b.pause); err != nil {
					return err
				}
			}
			close(healthy[component])
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return c.waitUsable(ctx)
}

// upKWOK makes the number of KWOK nodes what is wanted.
func (b *blueprint) upKWOK(ctx context.Context, c *Cluster, wanted *int, progress io.Writer) error {
	s, err := readState(b.layout)
	if err != nil {
		return err
	}
	if wanted == nil || *wanted == s.KWOKNodes {
		return nil
	}
	fmt.Fprintf(progress, "changing from %d to %d KWOK nodes…\n", s.KWOKNodes, *wanted)
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	if err := c.scaleKWOK(ctx, *wanted); err != nil {
		return err
	}
	s.KWOKNodes = *wanted
	return s.write(b.layout)
}
