package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/pool/status"
)

// mode is what people may tell a pool's manager to do with it. A pool is in one mode at a time: each command takes back
// what another one has set.
type mode struct {
	command     string
	done        string          // "pool/x paused"
	annotations map[string]bool // all that there are, and whether they are set
}

func modes() (pause, resume, drain mode) {
	set := func(paused, drained bool) map[string]bool {
		return map[string]bool{factory.AnnotationPaused: paused, factory.AnnotationDrained: drained}
	}
	return mode{"pause", "paused", set(true, false)}, mode{"resume", "resumed", set(false, false)}, mode{"drain", "drained", set(false, true)}
}

// holds says whether an anchor is in this mode already.
func (m mode) holds(anchor *corev1.ConfigMap) bool {
	for annotation, set := range m.annotations {
		if (anchor.Annotations[annotation] == "true") != set {
			return false
		}
	}
	return true
}

// patch makes an anchor be in this mode, and touches nothing else of it.
func (m mode) patch(anchor *corev1.ConfigMap) ([]byte, error) {
	annotations := map[string]any{}
	for annotation, set := range m.annotations {
		annotations[annotation] = nil // takes it away
		if set {
			annotations[annotation] = "true"
		}
	}
	// The UID is that of the anchor which was looked at: one that was made anew in between is not touched.
	return json.Marshal(map[string]any{"metadata": map[string]any{"uid": anchor.UID, "annotations": annotations}})
}

type modeOptions struct {
	genericiooptions.IOStreams
	mode   mode
	pools  statusOptions // how pools are named and found is that of status
	all    bool
	output string
}

// modeResult is a pool that a command has brought into a mode, or found in it.
type modeResult struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Mode      string `json:"mode"` // paused, resumed or drained
	Changed   bool   `json:"changed"`
}

func newPause(streams genericiooptions.IOStreams) *cobra.Command {
	m, _, _ := modes()
	return newMode(streams, m, &cobra.Command{
		Short: "Let pools be as they are: no pod is made, no surplus goes",
		Long: `Pause pools: their manager makes no pods and removes none for being surplus, until they are resumed or drained.
Jobs go on claiming the idle pods that are there; those that nobody claims end after their idle_time, and are not
replaced. A pool stays paused when its manager is restarted, and when a change of the configuration gives it another name.
To pause a pool that is paused is no error.`,
		Example: `  # One pool, by name
  idlecount pause -n ci fakefakef-0a1b2c3d4e

  # All pools of a namespace, then of the cluster
  idlecount pause -n ci --all
  idlecount pause -A --all`,
	})
}

func newResume(streams genericiooptions.IOStreams) *cobra.Command {
	_, m, _ := modes()
	return newMode(streams, m, &cobra.Command{
		Short: "Go on with pools that were paused or drained",
		Long: `Resume pools that were paused or drained: their manager fills them again, at once.
To resume a pool that is neither is no error.`,
		Example: `  idlecount resume -n ci fakefakef-0a1b2c3d4e

  # Whatever is paused or drained in the namespace of the context
  idlecount resume --all`,
	})
}

func newDrain(streams genericiooptions.IOStreams) *cobra.Command {
	_, _, m := modes()
	return newMode(streams, m, &cobra.Command{
		Short: "Empty pools: idle pods go, jobs stay",
		Long: `Drain pools: their manager removes all pods that no job has claimed, and makes no new ones until they are resumed.
Jobs that run are left alone; jobs that come start cold. A pool stays drained when its manager is restarted, and when a
change of the configuration gives it another name. To drain a pool that is drained is no error.

It is the manager that removes the pods: if none runs, stderr says so, and it happens when one does.`,
		Example: `  # Before a node pool is taken away
  idlecount drain -n ci --all
  idlecount status -n ci --watch

  # Afterwards
  idlecount resume -n ci --all`,
	})
}

// newMode makes of a command that says what it is for one that does it.
func newMode(streams genericiooptions.IOStreams, m mode, cmd *cobra.Command) *cobra.Command {
	o := &modeOptions{IOStreams: streams, mode: m, pools: statusOptions{IOStreams: streams, connection: newConnection(), now: time.Now}}
	cmd.Use = m.command + " (POOL... | --all)"
	cmd.Args = args(cobra.ArbitraryArgs)
	cmd.RunE = perform(o)
	cmd.ValidArgsFunction = o.pools.completePools
	o.pools.connection.addFlags(cmd.Flags())
	addOutput(cmd, &o.output, "name", "json", "yaml")
	cmd.Flags().BoolVar(&o.all, "all", false, m.command+" all pools of the namespace")
	cmd.Flags().BoolVarP(&o.pools.allNamespaces, "all-namespaces", "A", false, "with --all: in all namespaces; with names: in whichever namespace they are")
	return cmd
}

func (o *modeOptions) complete(cmd *cobra.Command, given []string) error {
	return o.pools.complete(cmd, given)
}

func (o *modeOptions) validate(cmd *cobra.Command) error {
	switch {
	case o.all && len(o.pools.names) > 0:
		return usage(cmd, "--all and names of pools exclude each other")
	case !o.all && len(o.pools.names) == 0:
		return usage(cmd, "name the pools to %s, or say --all; `idlecount status` shows them", o.mode.command)
	}
	if err := oneOf(cmd, "output", o.output, "name", "json", "yaml"); err != nil {
		return err
	}
	return o.pools.validate(cmd)
}

func (o *modeOptions) run(ctx context.Context) error {
	cluster, err := o.pools.connection.connect()
	if err != nil {
		return err
	}
	list, err := cluster.CoreV1().ConfigMaps(o.pools.namespace).List(ctx, metav1.ListOptions{LabelSelector: o.pools.selector()})
	if err != nil {
		return cluster.explain(fmt.Errorf("list the pools' ConfigMaps: %w", err))
	}
	anchors := slices.DeleteFunc(list.Items, func(a corev1.ConfigMap) bool { return !status.IsAnchor(&a) })
	results := []modeResult{}
	var errs []error
	for i := range anchors {
		changed, err := o.apply(ctx, cluster, &anchors[i])
		if err != nil {
			errs = append(errs, cluster.explain(err))
			continue
		}
		results = append(results, modeResult{anchors[i].Namespace, anchors[i].Name, o.mode.done, changed})
	}
	if err := o.print(results); err != nil {
		return err
	}
	pools := statusList{Pools: status.Pools(anchors, nil, false)}
	if pools.Managers, err = o.pools.managers(ctx, cluster, pools.Pools); err != nil {
		errs = append(errs, cluster.explain(err))
	}
	o.pools.warn(pools)
	if len(anchors) == 0 && o.all {
		say(o.ErrOut, "No pools "+o.pools.where()+".")
	}
	return errors.Join(append(errs, o.pools.missing(pools))...)
}

// apply brings one pool into the mode, and says whether it wasn't before.
func (o *modeOptions) apply(ctx context.Context, cluster *cluster, anchor *corev1.ConfigMap) (changed bool, err error) {
	if o.mode.holds(anchor) {
		return false, nil
	}
	patch, err := o.mode.patch(anchor)
	if err != nil {
		return false, err
	}
	_, err = cluster.CoreV1().ConfigMaps(anchor.Namespace).Patch(ctx, anchor.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return false, fmt.Errorf("%s the pool %s in namespace %s: it is gone", o.mode.command, anchor.Name, anchor.Namespace)
	}
	if err != nil {
		return false, fmt.Errorf("%s the pool %s in namespace %s: %w", o.mode.command, anchor.Name, anchor.Namespace, err)
	}
	return true, nil
}

func (o *modeOptions) print(results []modeResult) error {
	list := struct {
		Pools []modeResult `json:"pools"`
	}{results}
	switch o.output {
	case "json":
		return writeJSON(o.Out, list)
	case "yaml":
		return writeYAML(o.Out, list)
	}
	var b strings.Builder
	for _, r := range results {
		b.WriteString("pool/" + r.Name)
		if o.output == "" {
			b.WriteString(map[bool]string{true: " ", false: " already "}[r.Changed] + r.Mode)
			if o.pools.namespace == "" {
				b.WriteString(" in namespace " + r.Namespace)
			}
		}
		b.WriteString("\n")
	}
	_, err := io.WriteString(o.Out, b.String())
	return err
}
