package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"

	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/pool/status"
)

type statusOptions struct {
	genericiooptions.IOStreams
	connection    connection
	output        string
	allNamespaces bool
	withPods      bool
	watch         bool

	names     []string // pools and capacities that were asked for; none = all
	namespace string   // "" = all
	now       func() time.Time
}

func newStatus(streams genericiooptions.IOStreams) *cobra.Command {
	o := &statusOptions{IOStreams: streams, connection: newConnection(), now: time.Now}
	cmd := &cobra.Command{
		Use:   "status [NAME...]",
		Short: "Show pools and capacities, their pods, and why some are missing",
		Long: `Show the pools and capacities of a namespace, or those that are named. Of pools: how many idle pods each wants and has, and a line below it that says why
some are missing, in the words of the API server, the scheduler or the kubelet.

  WANT     idle pods wanted by the policy in force
  IDLE     Ready and claimable
  WARMING  exist and are not Ready yet
  CLAIMED  bound to a job
  FAILED   ended or stuck, unclaimed
  OLDEST   how long the oldest idle pod has been idle

Where room is held for jobs (idle_strategy = "pause" or "buffer", idle_pause_count), a second table has these capacities.
It tells pause pods that HELD a node from those that are PENDING, and how long the pods of the JOBS waited for their node.

A row without POLICY and WANT stands for jobs whose pods have a shape that no pool has: they started cold.
Status reads ConfigMaps, pods and the managers' lease. It needs no manager: if none runs, stderr says so.`,
		Example: `  # Pools of the context's namespace, then of all namespaces with more columns
  idlecount status
  idlecount status -A -o wide

  # The room that is held for a runner's jobs, until it is interrupted
  idlecount status -n ci fakefakef-pause --watch

  # Which pod does job 4242 have?
  idlecount status -n ci --pods | grep -w 4242

  # Names of pools that are short, for a script
  idlecount status -A -o json | jq -r '.pools[] | select(.short > 0) | .name'

  # Print again when something changes
  idlecount status -A --watch`,
		Args: args(cobra.ArbitraryArgs),
		RunE: perform(o),
	}
	o.connection.addFlags(cmd.Flags())
	addOutput(cmd, &o.output, "wide", "json", "yaml", "name")
	cmd.Flags().BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "show the pools and capacities of all namespaces")
	cmd.Flags().BoolVar(&o.withPods, "pods", false, "list the pods of the pools too")
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "print again whenever something changes, until interrupted")
	cmd.ValidArgsFunction = o.completeNames
	return cmd
}

func (o *statusOptions) complete(_ *cobra.Command, given []string) error {
	o.names = nil
	for _, name := range given {
		o.names = append(o.names, bare(name))
	}
	if o.allNamespaces {
		return nil
	}
	var err error
	o.namespace, err = o.connection.namespace()
	return err
}

// bare is a name without the kind that commands print before it, as in pool/x and capacity/x.
func bare(name string) string {
	for _, kind := range []string{kindPool, kindCapacity} {
		if rest, ok := strings.CutPrefix(name, kind+"/"); ok {
			return rest
		}
	}
	return name
}

func (o *statusOptions) validate(cmd *cobra.Command) error {
	if o.allNamespaces && *o.connection.flags.Namespace != "" {
		return usage(cmd, "--namespace and --all-namespaces exclude each other")
	}
	for _, name := range o.names {
		if name == "" || len(validation.IsValidLabelValue(name)) > 0 {
			return usage(cmd, "%q can't be the name of a pool or a capacity; `idlecount status -A -o name` lists those that exist", name)
		}
	}
	return oneOf(cmd, "output", o.output, "wide", "json", "yaml", "name")
}

func (o *statusOptions) run(ctx context.Context) error {
	cluster, err := o.connection.connect()
	if err != nil {
		return err
	}
	list, err := o.read(ctx, cluster)
	if err != nil {
		return cluster.explain(err)
	}
	if o.watch {
		return cluster.explain(o.follow(ctx, cluster))
	}
	o.warn(list)
	if err := o.print(list); err != nil {
		return err
	}
	if list.empty() && len(o.names) == 0 {
		say(o.ErrOut, o.nothing(ctx, cluster))
	}
	return o.missing(list)
}

// warn says on stderr what is wrong with the managers, and with what they were given.
func (o *statusOptions) warn(list statusList) {
	for _, m := range list.Managers {
		effect := "room for jobs is not kept"
		if slices.ContainsFunc(list.Pools, func(p status.Pool) bool { return p.Lease == m.Lease }) {
			effect = "idle pods are not refilled"
		}
		if w := m.Warning(o.now(), effect); w != "" {
			say(o.ErrOut, "warning: "+w)
		}
	}
	for _, broken := range list.configErrors() {
		say(o.ErrOut, "warning: the manager can't use its configuration as it is now and goes on with the one before: "+oneLine(broken))
	}
}

func (o *statusOptions) print(list statusList) error {
	switch o.output {
	case "json":
		return writeJSON(o.Out, list)
	case "yaml":
		return writeYAML(o.Out, list)
	case "name":
		var names strings.Builder
		for _, p := range list.Pools {
			if !o.withPods {
				names.WriteString(p.Name + "\n")
				continue
			}
			for _, pod := range p.Pods {
				names.WriteString(pod.Name + "\n")
			}
		}
		for _, c := range list.Capacity {
			if !o.withPods {
				names.WriteString(c.Name + "\n")
			}
		}
		_, err := io.WriteString(o.Out, names.String())
		return err
	default:
		return writeTables(o.Out, list, tableOptions{
			wide: o.output == "wide", namespaces: o.allNamespaces, pods: o.withPods, now: o.now(),
		})
	}
}

// none is what is said where there is neither.
const none = "No pools or capacities"

// nothing says that there are none, and where some are, if this user may know.
func (o *statusOptions) nothing(ctx context.Context, client kubernetes.Interface) string {
	if o.namespace == "" {
		return none + " in any namespace. The manager makes them: see `idlecount run --help` and `idlecount validate --help`."
	}
	message := none + " in namespace " + o.namespace + "; use -n or -A."
	var namespaces []string
	for _, label := range []string{factory.LabelPool, factory.LabelCapacity} {
		all, err := client.CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{LabelSelector: label})
		if err != nil {
			return message
		}
		for i := range all.Items {
			namespaces = append(namespaces, all.Items[i].Namespace)
		}
	}
	if len(namespaces) == 0 {
		return message
	}
	slices.Sort(namespaces)
	return message + " There are some in: " + strings.Join(slices.Compact(namespaces), ", ") + "."
}

// missing is the error of names that are neither those of pools nor of capacities.
func (o *statusOptions) missing(list statusList) error {
	var errs []error
	found := list.names()
	for _, name := range o.names {
		if !slices.Contains(found, name) {
			errs = append(errs, fmt.Errorf("there is no pool or capacity %q %s; `idlecount status -A -o name` lists those that exist", name, o.where()))
		}
	}
	return errors.Join(errs...)
}

func (o *statusOptions) where() string {
	if o.namespace == "" {
		return "in any namespace"
	}
	return "in namespace " + o.namespace
}

// completeNames offers the names of pools and capacities to the shell. Whatever goes wrong, the user sees no offers rather
// than errors.
func (o *statusOptions) completeNames(cmd *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
	if err := o.complete(cmd, nil); err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	cluster, err := o.connection.connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	list, err := o.read(cmd.Context(), cluster)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return slices.DeleteFunc(list.names(), func(name string) bool { return slices.Contains(given, name) }), cobra.ShellCompDirectiveNoFileComp
}
