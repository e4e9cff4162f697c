package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"idlecount.dev/idlecount/e2e/cluster/internal/build"
	"idlecount.dev/idlecount/e2e/cluster/internal/host"
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

// blueprint is everything that decides what the cluster is: the programs, their arguments and their files.
type blueprint struct {
	layout      layout
	tree        build.Tree
	recipes     []build.Recipe
	pause       string
	registry    string
	definitions map[Component]definition
	files       map[string][]byte
	fingerprint string
}

// newBlueprint reads the checkout around the working directory, and builds and installs what is missing.
func newBlueprint(ctx context.Context, l layout, progress io.Writer) (*blueprint, error) {
	working, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	b := &blueprint{layout: l}
	if b.tree, err = build.FindTree(working); err != nil {
		return nil, err
	}
	for _, module := range build.Modules() {
		recipe, err := b.tree.Recipe(module)
		if err != nil {
			return nil, err
		}
		b.recipes = append(b.recipes, recipe)
	}
	if err := host.Install(ctx, requirements(), progress); err != nil {
		return nil, err
	}
	if err := b.build(ctx, progress); err != nil {
		return nil, err
	}
	tools, err := findTools()
	if err != nil {
		return nil, err
	}
	if b.files, err = configFiles(l, tools); err != nil {
		return nil, err
	}
	for _, recipe := range b.recipes {
		if recipe.Name == "kwok" {
			if b.files[l.config("kwok.yaml")], err = readStages(ctx, recipe, l.programs()); err != nil {
				return nil, err
			}
		}
	}
	programs := locate(b.recipes, l.programs())
	programs["registry"] = b.registry
	b.definitions = define(l, programs)
	// A laptop in another network has other name servers, which is no reason to lose the cluster.
	tools.resolver = resolver{}
	stable, err := configFiles(l, tools)
	if err != nil {
		return nil, err
	}
	b.fingerprint, err = fingerprint(b.definitions, stable)
	return b, err
}

const (
	pauseSource    = "e2e/cluster/pause"
	registrySource = "e2e/cluster/registry"
)

func (b *blueprint) build(ctx context.Context, progress io.Writer) error {
	if err := build.Build(ctx, b.recipes, b.layout.programs(), progress); err != nil {
		return err
	}
	for source, target := range map[string]*string{pauseSource: &b.pause, registrySource: &b.registry} {
		path, err := b.tree.Own(source, b.layout.programs())
		if err != nil {
			return err
		}
		if err := b.tree.BuildOwn(ctx, source, path); err != nil {
			return err
		}
		*target = path
	}
	return nil
}

// requirements are what the cluster needs of Debian.
func requirements() []host.Requirement {
	return []host.Requirement{
		{Any: []string{"runc"}, Package: "runc"},
		{Any: cniFolders("bridge"), Package: "containernetworking-plugins"},
		{Any: []string{"iptables"}, Package: "iptables"},
		{Any: []string{"ip"}, Package: "iproute2"},
	}
}

// cniFolders are where CNI plugins are installed: by Debian, and by everybody else.
func cniFolders(file string) []string {
	return []string{"/usr/lib/cni/" + file, "/opt/cni/bin/" + file}
}

func findTools() (tools, error) {
	runc, err := exec.LookPath("runc")
	if err != nil {
		return tools{}, err
	}
	t := tools{runc: runc, resolver: hostResolver()}
	for _, folder := range cniFolders("") {
		if _, err := os.Stat(folder + "bridge"); err == nil {
			t.cniPlugins = folder
			break
		}
	}
	return t, nil
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
	for _, component := range c.expected() {
		id, alive := c.alive(component)
		if alive && c.check(ctx, component) == nil {
			continue
		}
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
