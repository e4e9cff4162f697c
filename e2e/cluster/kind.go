package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/kind/pkg/apis/config/v1alpha4"
	"sigs.k8s.io/kind/pkg/cluster"
	"sigs.k8s.io/kind/pkg/cluster/nodeutils"
	"sigs.k8s.io/kind/pkg/log"
)

const (
	kindName = "idlecount"
	// kindRegistry only exists in the names of images that were loaded into kind's nodes.
	kindRegistry    = "kind.idlecount.dev"
	kindReadyWithin = 5 * time.Minute
)

// kindTarget is a cluster of kind, made by Docker containers.
type kindTarget struct {
	provider   *cluster.Provider
	kubeconfig string
	progress   io.Writer
}

// dockerAnswers says whether there is a Docker client and a daemon behind it.
func dockerAnswers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "docker", "version", "--format", "{{.Server.Version}}").Output()
	return err == nil && len(strings.TrimSpace(string(out))) > 0
}

func newKindTarget(progress io.Writer) (*kindTarget, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	return &kindTarget{
		provider:   cluster.NewProvider(cluster.ProviderWithDocker(), cluster.ProviderWithLogger(kindLog{progress})),
		kubeconfig: filepath.Join(cache, "idlecount", "kind-kubeconfig"),
		progress:   progress,
	}, nil
}

// openKind returns kind's cluster of our name. One that does not answer is replaced.
func openKind(ctx context.Context, progress io.Writer) (Target, error) {
	if !dockerAnswers(ctx) {
		return nil, errors.New("kind needs Docker, and `docker version` does not get an answer: start Docker, or use the local cluster")
	}
	t, err := newKindTarget(progress)
	if err != nil {
		return nil, err
	}
	names, err := t.provider.List()
	if err != nil {
		return nil, fmt.Errorf("list kind's clusters: %w", err)
	}
	if slices.Contains(names, kindName) {
		err := t.reuse(ctx)
		if err == nil || ctx.Err() != nil {
			return t, err
		}
		fmt.Fprintf(progress, "replacing the kind cluster %s: %v\n", kindName, err)
		if err := t.provider.Delete(kindName, t.kubeconfig); err != nil {
			return nil, fmt.Errorf("delete the kind cluster %s: %w", kindName, err)
		}
	}
	if err := os.MkdirAll(filepath.Dir(t.kubeconfig), 0o700); err != nil {
		return nil, err
	}
	if err := t.provider.Create(kindName, kindOptions(t.kubeconfig)...); err != nil {
		return nil, fmt.Errorf("create the kind cluster %s: %w", kindName, err)
	}
	return t, nil
}

func kindOptions(kubeconfig string) []cluster.CreateOption {
	return []cluster.CreateOption{
		cluster.CreateWithV1Alpha4Config(kindConfig()),
		cluster.CreateWithKubeconfigPath(kubeconfig),
		cluster.CreateWithWaitForReady(kindReadyWithin),
		cluster.CreateWithDisplayUsage(false),
		cluster.CreateWithDisplaySalutation(false),
	}
}

// kindConfig is one node, as the local cluster has, with room for as many pods.
func kindConfig() *v1alpha4.Cluster {
	return &v1alpha4.Cluster{
		TypeMeta: v1alpha4.TypeMeta{APIVersion: "kind.x-k8s.io/v1alpha4", Kind: "Cluster"},
		Nodes: []v1alpha4.Node{{
			Role: v1alpha4.ControlPlaneRole,
			KubeadmConfigPatches: []string{
				"kind: KubeletConfiguration\nmaxPods: 250\nserializeImagePulls: false\n",
			},
		}},
	}
}

// reuse fails if the cluster's API server does not answer.
func (t *kindTarget) reuse(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Dir(t.kubeconfig), 0o700); err != nil {
		return err
	}
	if err := t.provider.ExportKubeConfig(kindName, t.kubeconfig, false); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", t.kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return waitNodes(ctx, client, len(kindConfig().Nodes))
}

func (t *kindTarget) Kubeconfig() string { return t.kubeconfig }

func (t *kindTarget) Description() string { return "the kind cluster " + kindName }

// Publish loads the images into all nodes.
func (t *kindTarget) Publish(ctx context.Context, images map[string]v1.Image) (map[string]string, error) {
	nodes, err := t.provider.ListInternalNodes(kindName)
	if err != nil {
		return nil, err
	}
	tagged, references, err := tagImages(kindRegistry, images)
	if err != nil {
		return nil, err
	}
	for _, node := range nodes {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		reader, writer := io.Pipe()
		go func() { writer.CloseWithError(tarball.MultiWrite(tagged, writer)) }()
		err := nodeutils.LoadImageArchive(node, reader)
		reader.Close() // ends the writer if the node did not want all of it
		if err != nil {
			return nil, fmt.Errorf("load images into the kind node %s: %w", node, err)
		}
	}
	return references, nil
}

func tagImages(registry string, images map[string]v1.Image) (map[name.Tag]v1.Image, map[string]string, error) {
	tagged, references := map[name.Tag]v1.Image{}, map[string]string{}
	for repository, image := range images {
		tag, err := referenceFor(registry, repository, image)
		if err != nil {
			return nil, nil, err
		}
		tagged[tag], references[repository] = image, tag.String()
	}
	return tagged, references, nil
}

// RemoveKind deletes the kind cluster that Open made, and says whether there was one. Without Docker there is none.
func RemoveKind(ctx context.Context, progress io.Writer) (bool, error) {
	if !dockerAnswers(ctx) {
		return false, nil
	}
	t, err := newKindTarget(progress)
	if err != nil {
		return false, err
	}
	names, err := t.provider.List()
	if err != nil || !slices.Contains(names, kindName) {
		return false, err
	}
	return true, t.provider.Delete(kindName, t.kubeconfig)
}

// kindLog shows what kind tells its user.
type kindLog struct{ out io.Writer }

func (l kindLog) Warn(message string)               { fmt.Fprintln(l.out, message) }
func (l kindLog) Warnf(format string, args ...any)  { fmt.Fprintf(l.out, format+"\n", args...) }
func (l kindLog) Error(message string)              { fmt.Fprintln(l.out, message) }
func (l kindLog) Errorf(format string, args ...any) { fmt.Fprintf(l.out, format+"\n", args...) }

func (l kindLog) V(level log.Level) log.InfoLogger {
	return kindInfo{kindLog: l, enabled: level == 0}
}

type kindInfo struct {
	kindLog
	enabled bool
}

func (l kindInfo) Enabled() bool { return l.enabled }

func (l kindInfo) Info(message string) {
	if l.enabled {
		fmt.Fprintln(l.out, message)
	}
}

func (l kindInfo) Infof(format string, args ...any) {
	if l.enabled {
		fmt.Fprintf(l.out, format+"\n", args...)
	}
}
