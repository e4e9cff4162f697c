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

	capacitystatus "idlecount.dev/idlecount/capacity/status"
	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/pool/status"
)

// mode is what people may tell the manager of a pool or a capacity to do with it. It is in one mode at a time: each command
// takes back what another one has set.
type mode struct {
	command     string
	done        string          // "pool/x paused", "capacity/x paused"
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
	names  statusOptions // how pools and capacities are named and found is that of status
	all    bool
	output string
}

// The kinds of what has a mode.
const (
	kindPool     = "pool"
	kindCapacity = "capacity"
)

// modeResult is a pool or a capacity that a command has brought into a mode, or found in it.
type modeResult struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Mode      string `json:"mode"` // paused, resumed or drained
	Changed   bool   `json:"changed"`
}

// modeList is what the commands print as JSON and YAML.
type modeList struct {
	Pools    []modeResult `json:"pools"`
	Capacity []modeResult `json:"capacity,omitempty"`
}

func newPause(streams genericiooptions.IOStreams) *cobra.Command {
	m, _, _ := modes()
	return newMode(streams, m, &cobra.Command{
		Short: "Let pools and capacities be as they are: no pod is made, no surplus goes",
		Long: `Pause pools: their manager makes no pods and removes none for being surplus, until they are resumed or drained.
Jobs go on claiming the idle pods that are there; those that nobody claims end after their idle_time, and are not
replaced. A pool stays paused when its manager is restarted, and when a change of the configuration gives it another name.

Pause capacities, the room that is held for jobs: as many pause pods (or places in a buffer) are asked for as at the time,
whatever the policies say. What a limit or a quota doesn't leave is given back all the same: jobs may be waiting for it.

Names of pools and of capacities may be mixed. To pause what is paused is no error.`,
		Example: `  # One pool, by name
  idlecount pause -n ci fakefakef-0a1b2c3d4e

  # The room that is held for a runner's jobs
  idlecount pause -n ci fakefakef-pause

  # All of a namespace, then of the cluster
  idlecount pause -n ci --all
  idlecount pause -A --all`,
	})
}

func newResume(streams genericiooptions.IOStreams) *cobra.Command {
	_, m, _ := modes()
	return newMode(streams, m, &cobra.Command{
		Short: "Go on with pools and capacities that were paused or drained",
		Long: `Resume pools and capacities that were paused or drained: their manager fills them again, at once.
To resume one that is neither is no error.`,
		Example: `  idlecount resume -n ci fakefakef-0a1b2c3d4e fakefakef-pause

  # Whatever is paused or drained in the namespace of the context
  idlecount resume --all`,
	})
}

func newDrain(streams genericiooptions.IOStreams) *cobra.Command {
	_, _, m := modes()
	return newMode(streams, m, &cobra.Command{
		Short: "Empty pools and capacities: idle pods and pause pods go, jobs stay",
		Long: `Drain pools: their manager removes all pods that no job has claimed, and makes no new ones until they are resumed.
Drain capacities: their manager removes all pause pods, or asks for an empty buffer.
Jobs that run are left alone; jobs that come start cold. What is drained stays so when its manager is restarted, and a pool
also when a change of the configuration gives it another name. To drain what is drained is no error.

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
	o := &modeOptions{IOStreams: streams, mode: m, names: statusOptions{IOStreams: streams, connection: newConnection(), now: time.Now}}
	cmd.Use = m.command + " (NAME... | --all)"
	cmd.Args = args(cobra.ArbitraryArgs)
	cmd.RunE = perform(o)
	cmd.ValidArgsFunction = o.names.completeNames
	o.names.connection.addFlags(cmd.Flags())
	addOutput(cmd, &o.output, "name", "json", "yaml")
	cmd.Flags().BoolVar(&o.all, "all", false, m.command+" all pools and capacities of the namespace")
	cmd.Flags().BoolVarP(&o.names.allNamespaces, "all-namespaces", "A", false, "with --all: in all namespaces; with names: in whichever namespace they are")
	return cmd
}

func (o *modeOptions) complete(cmd *cobra.Command, given []string) error {
	return o.names.complete(cmd, given)
}

func (o *modeOptions) validate(cmd *cobra.Command) error {
	switch {
	case o.all && len(o.names.names) > 0:
		return usage(cmd, "--all and names exclude each other")
	case !o.all && len(o.names.names) == 0:
		return usage(cmd, "name the pools and capacities to %s, or say --all; `idlecount status` shows them", o.mode.command)
	}
	if err := oneOf(cmd, "output", o.output, "name", "json", "yaml"); err != nil {
		return err
	}
	return o.names.validate(cmd)
}

func (o *modeOptions) run(ctx context.Context) error {
	cluster, err := o.names.connection.connect()
	if err != nil {
		return err
	}
	found, err := o.names.anchors(ctx, cluster)
	if err != nil {
		return cluster.explain(err)
	}
	pools, failed := o.applyAll(ctx, cluster, kindPool, found.anchors, status.IsAnchor)
	capacities, alsoFailed := o.applyAll(ctx, cluster, kindCapacity, found.capacities, func(a *corev1.ConfigMap) bool { return capacitystatus.IsAnchor(a) && o.names.asked(a.Name) })
	if err := o.print(modeList{pools, capacities}); err != nil {
		return err
	}
	errs := slices.Concat(failed, alsoFailed)
	list := o.names.rows(found)
	if list.Managers, err = o.names.managers(ctx, cluster, list); err != nil {
		errs = append(errs, cluster.explain(err))
	}
	o.names.warn(list)
	if list.empty() && o.all {
		say(o.ErrOut, none+" "+o.names.where()+".")
	}
	return errors.Join(append(errs, o.names.missing(list))...)
}

// applyAll brings those of one kind into the mode.
func (o *modeOptions) applyAll(ctx context.Context, cluster *cluster, kind string, labelled []corev1.ConfigMap, is func(*corev1.ConfigMap) bool) (results []modeResult, errs []error) {
	results = []modeResult{}
	for i := range labelled {
		anchor := &labelled[i]
		if !is(anchor) {
			continue
		}
		changed, err := o.apply(ctx, cluster, kind, anchor)
		if err != nil {
			errs = append(errs, cluster.explain(err))
			continue
		}
		results = append(results, modeResult{anchor.Namespace, anchor.Name, o.mode.done, changed})
	}
	return results, errs
}

// apply brings one pool or capacity into the mode, and says whether it wasn't before.
func (o *modeOptions) apply(ctx context.Context, cluster *cluster, kind string, anchor *corev1.ConfigMap) (changed bool, err error) {
	if o.mode.holds(anchor) {
		return false, nil
	}
	patch, err := o.mode.patch(anchor)
	if err != nil {
		return false, err
	}
	_, err = cluster.CoreV1().ConfigMaps(anchor.Namespace).Patch(ctx, anchor.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return false, fmt.Errorf("%s the %s %s in namespace %s: it is gone", o.mode.command, kind, anchor.Name, anchor.Namespace)
	}
	if err != nil {
		return false, fmt.Errorf("%s the %s %s in namespace %s: %w", o.mode.command, kind, anchor.Name, anchor.Namespace, err)
	}
	return true, nil
}

func (o *modeOptions) print(list modeList) error {
	switch o.output {
	case "json":
		return writeJSON(o.Out, list)
	case "yaml":
		return writeYAML(o.Out, list)
	}
	var b strings.Builder
	for _, r := range list.Pools {
		o.line(&b, kindPool, r)
	}
	for _, r := range list.Capacity {
		o.line(&b, kindCapacity, r)
	}
	_, err := io.WriteString(o.Out, b.String())
	return err
}

func (o *modeOptions) line(b *strings.Builder, kind string, r modeResult) {
	b.WriteString(kind + "/" + r.Name)
	if o.output == "" {
		b.WriteString(map[bool]string{true: " ", false: " already "}[r.Changed] + r.Mode)
		if o.names.namespace == "" {
			b.WriteString(" in namespace " + r.Namespace)
		}
	}
	b.WriteString("\n")
}
