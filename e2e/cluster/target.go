package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Target is a cluster that a demo runs on, whatever it is made of.
type Target interface {
	// Kubeconfig returns the path of a kubeconfig that may do what the demo does.
	Kubeconfig() string
	// Publish makes images usable for pods and returns, for each name, the reference to write into a pod, which must
	// not ask for imagePullPolicy Always. A name is a repository, as in "idlecount"; its tag is made from the image's
	// digest, so that the same image has the same reference and another one another.
	Publish(ctx context.Context, images map[string]v1.Image) (map[string]string, error)
	// Description is a few words for the user.
	Description() string
}

// The kinds of Target.
const (
	KindLocal    = "local"
	KindKind     = "kind"
	KindExisting = "existing"
)

// TargetOptions say which Target Open returns.
type TargetOptions struct {
	// Kind is KindLocal, KindKind or KindExisting. Empty means kind if Docker answers, else local.
	Kind string
	// Kubeconfig of an existing cluster.
	Kubeconfig string
	// Registry is where images for an existing cluster are pushed: host[:port][/path]. Docker's credentials are used.
	// Not needed if the existing cluster is the local one.
	Registry string
	// Progress gets a line for each step that takes time; nil for none.
	Progress io.Writer
}

// TargetFromEnv are the options as a user of `make` gives them: CLUSTER is the kind, KUBECONFIG and REGISTRY are those of an
// existing cluster. Progress goes to stderr.
func TargetFromEnv() TargetOptions {
	return TargetOptions{
		Kind: os.Getenv("CLUSTER"), Kubeconfig: os.Getenv("KUBECONFIG"), Registry: os.Getenv("REGISTRY"), Progress: os.Stderr,
	}
}

// Open returns the target, after it has made or repaired it if it is ours.
func Open(ctx context.Context, options TargetOptions) (Target, error) {
	if options.Progress == nil {
		options.Progress = io.Discard
	}
	kind := options.Kind
	if kind == "" {
		kind = KindLocal
		if dockerAnswers(ctx) {
			kind = KindKind
		}
	}
	switch kind {
	case KindLocal:
		c, err := Up(ctx, Options{Progress: options.Progress})
		if err != nil {
			return nil, err // not c: a nil *Cluster in the interface would not be nil
		}
		return c, nil
	case KindKind:
		return openKind(ctx, options.Progress)
	case KindExisting:
		return openExisting(ctx, options)
	}
	return nil, fmt.Errorf("no kind of cluster is called %q, there are %s, %s and %s", kind, KindLocal, KindKind, KindExisting)
}

// Description implements Target.
func (c *Cluster) Description() string { return "the local cluster in " + c.layout.folder }

// Publish implements Target: the images are pushed to the cluster's own registry.
func (c *Cluster) Publish(ctx context.Context, images map[string]v1.Image) (map[string]string, error) {
	return PushTo(c.Registry()).Publish(ctx, images)
}

// existing is a cluster that somebody else made.
type existing struct {
	kubeconfig, registry string
}

func openExisting(ctx context.Context, options TargetOptions) (Target, error) {
	if options.Kubeconfig == "" {
		return nil, errors.New("an existing cluster needs a kubeconfig: set KUBECONFIG")
	}
	if _, err := os.Stat(options.Kubeconfig); err != nil {
		return nil, fmt.Errorf("the kubeconfig of the existing cluster: %w", err)
	}
	if options.Registry == "" {
		if local, err := Find(ctx); err == nil && sameFile(local.Kubeconfig(), options.Kubeconfig) {
			return local, nil
		}
		return nil, errors.New("an existing cluster needs a registry to pull idlecount's images from: set REGISTRY=host[:port][/path] to one that you may push to and that its nodes can pull from")
	}
	return existing{kubeconfig: options.Kubeconfig, registry: options.Registry}, nil
}

func sameFile(a, b string) bool {
	first, errFirst := os.Stat(a)
	second, errSecond := os.Stat(b)
	return errFirst == nil && errSecond == nil && os.SameFile(first, second)
}

func (e existing) Kubeconfig() string { return e.kubeconfig }

func (e existing) Description() string {
	return "the cluster of " + e.kubeconfig + " with images in " + e.registry
}

func (e existing) Publish(ctx context.Context, images map[string]v1.Image) (map[string]string, error) {
	return PushTo(e.registry).Publish(ctx, images)
}

// PushTo is where images are pushed to: host[:port][/path].
type PushTo string

// Publish does what Target says, with the credentials of Docker's configuration if the registry wants any.
func (r PushTo) Publish(ctx context.Context, images map[string]v1.Image) (map[string]string, error) {
	tagged, references, err := tagImages(string(r), images)
	if err != nil {
		return nil, err
	}
	for tag, image := range tagged {
		if err := remote.Write(tag, image, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
			return nil, fmt.Errorf("push the image %s: %w", tag, err)
		}
	}
	return references, nil
}

// referenceFor names an image by its content: <registry>/<repository>:<12 digits of the digest>. kind's nodes can't
// look images up by digest, so it is a tag.
func referenceFor(registry, repository string, image v1.Image) (name.Tag, error) {
	digest, err := image.Digest()
	if err != nil {
		return name.Tag{}, fmt.Errorf("image %s: %w", repository, err)
	}
	const digits = 12
	tag, err := name.NewTag(strings.TrimSuffix(registry, "/") + "/" + repository + ":" + digest.Hex[:digits])
	if err != nil {
		return name.Tag{}, fmt.Errorf("image %s: %w", repository, err)
	}
	return tag, nil
}
