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
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"

	capacitystatus "idlecount.dev/idlecount/capacity/status"
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

	names     []string // pools that were asked for; none = all
	namespace string   // "" = all
	now       func() time.Time
}

func newStatus(streams genericiooptions.IOStreams) *cobra.Command {
	o := &statusOptions{IOStreams: streams, connection: newConnection(), now: time.Now}
	cmd := &cobra.Command{
		Use:   "status [POOL...]",
		Short: "Show pools, their pods, and why idle pods are missing",
		Long: `Show the pools of a namespace: how many idle pods each wants and has, and a line below it that says why
some are missing, in the words of the API server, the scheduler or the kubelet.

  WANT     idle pods wanted by the policy in force
  IDLE     Ready and claimable
  WARMING  exist and are not Ready yet
  CLAIMED  bound to a job
  FAILED   ended or stuck, unclaimed
  OLDEST   how long the oldest idle pod has been idle

Where room is held for jobs (idle_strategy = "pause" or "buffer", idle_pause_count), a second table tells pause pods
that HELD a node from those that are PENDING, and how long the pods of the JOBS waited for their node.

A row without POLICY and WANT stands for jobs whose pods have a shape that no pool has: they started cold.
Status reads ConfigMaps, pods and the managers' lease. It needs no manager: if none runs, stderr says so.`,
		Example: `  # Pools of the context's namespace, then of all namespaces with more columns
  idlecount status
  idlecount status -A -o wide

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
	cmd.Flags().BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "show the pools of all namespaces")
	cmd.Flags().BoolVar(&o.withPods, "pods", false, "list the pods of the pools too")
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "print again whenever something changes, until interrupted")
	cmd.ValidArgsFunction = o.completePools
	return cmd
}

func (o *statusOptions) complete(_ *cobra.Command, given []string) error {
	o.names = given
	if o.allNamespaces {
		return nil
	}
	var err error
	o.namespace, err = o.connection.namespace()
	return err
}

func (o *statusOptions) validate(cmd *cobra.Command) error {
	if o.allNamespaces && *o.connection.flags.Namespace != "" {
		return usage(cmd, "--namespace and --all-namespaces exclude each other")
	}
	for _, name := range o.names {
		if name == "" || len(validation.IsValidLabelValue(name)) > 0 {
			return usage(cmd, "%q can't be the name of a pool; `idlecount status -A -o name` lists those that exist", name)
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
	if len(list.Pools)+len(list.Capacity) == 0 && len(o.names) == 0 {
		say(o.ErrOut, o.nothing(ctx, cluster))
	}
	return o.missing(list)
}

// statusList is what `status` prints as JSON and YAML.
type statusList struct {
	Pools    []status.Pool        `json:"pools"`
	Managers []status.Manager     `json:"managers"` // of those pools, by lease
	Capacity []capacitystatus.Row `json:"capacity,omitempty"`
}

// read takes one picture of the pools that were asked for.
func (o *statusOptions) read(ctx context.Context, client kubernetes.Interface) (statusList, error) {
	selector := metav1.ListOptions{LabelSelector: o.selector()}
	anchors, err := client.CoreV1().ConfigMaps(o.namespace).List(ctx, selector)
	if err != nil {
		return statusList{}, fmt.Errorf("list the pools' ConfigMaps: %w", err)
	}
	pods, err := client.CoreV1().Pods(o.namespace).List(ctx, selector)
	if err != nil {
		return statusList{}, fmt.Errorf("list the pools' pods: %w", err)
	}
	return o.compute(ctx, client, anchors.Items, pods.Items)
}

func (o *statusOptions) compute(ctx context.Context, client kubernetes.Interface, anchors []corev1.ConfigMap, pods []corev1.Pod) (statusList, error) {
	list := statusList{Pools: status.Pools(anchors, pods, o.withPods), Managers: []status.Manager{}}
	var err error
	if list.Managers, err = o.managers(ctx, client, list.Pools); err != nil {
		return list, err
	}
	list.Capacity, err = o.capacity(ctx, client)
	return list, err
}

func (o *statusOptions) selector() string {
	if len(o.names) == 0 {
		return factory.LabelPool
	}
	return factory.LabelPool + " in (" + strings.Join(o.names, ",") + ")"
}

// managers reads the leases that the pools name. A lease that this user may not read is no error: the pools are.
func (o *statusOptions) managers(ctx context.Context, client kubernetes.Interface, pools []status.Pool) ([]status.Manager, error) {
	managers := []status.Manager{}
	for _, p := range pools {
		if p.Lease == "" || slices.ContainsFunc(managers, func(m status.Manager) bool { return m.Lease == p.Lease }) {
			continue
		}
		namespace, name, _ := strings.Cut(p.Lease, "/")
		lease, err := client.CoordinationV1().Leases(namespace).Get(ctx, name, metav1.GetOptions{})
		switch {
		case err == nil:
			managers = append(managers, status.ManagerOf(p.Lease, lease, o.now()))
		case apierrors.IsNotFound(err):
			managers = append(managers, status.ManagerOf(p.Lease, nil, o.now()))
		case apierrors.IsForbidden(err):
			managers = append(managers, status.Manager{Lease: p.Lease, State: status.Unknown})
		default:
			return nil, fmt.Errorf("get the managers' lease %s: %w", p.Lease, err)
		}
	}
	return managers, nil
}

// warn says on stderr what is wrong with the managers, and with what they were given.
func (o *statusOptions) warn(list statusList) {
	for _, m := range list.Managers {
		if w := m.Warning(o.now()); w != "" {
			say(o.ErrOut, "warning: "+w)
		}
	}
	var said []string
	for _, p := range list.Pools {
		if p.ConfigError != "" && !slices.Contains(said, p.ConfigError) { // the same for all pools of a manager
			said = append(said, p.ConfigError)
			say(o.ErrOut, "warning: the manager can't use its configuration as it is now and goes on with the one before: "+oneLine(p.ConfigError))
		}
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
		_, err := io.WriteString(o.Out, names.String())
		return err
	default:
		return writeTables(o.Out, list, tableOptions{
			wide: o.output == "wide", namespaces: o.allNamespaces, pods: o.withPods, now: o.now(),
		})
	}
}

// nothing says that there are no pools, and where some are, if this user may know.
func (o *statusOptions) nothing(ctx context.Context, client kubernetes.Interface) string {
	if o.namespace == "" {
		return "No pools in any namespace. The manager makes them: see `idlecount run --help` and `idlecount validate --help`."
	}
	message := "No pools in namespace " + o.namespace + "; use -n or -A."
	all, err := client.CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{LabelSelector: factory.LabelPool})
	if err != nil || len(all.Items) == 0 {
		return message
	}
	var namespaces []string
	for i := range all.Items {
		namespaces = append(namespaces, all.Items[i].Namespace)
	}
	slices.Sort(namespaces)
	return message + " There are pools in: " + strings.Join(slices.Compact(namespaces), ", ") + "."
}

// missing is the error of pools that were asked for and don't exist.
func (o *statusOptions) missing(list statusList) error {
	var errs []error
	for _, name := range o.names {
		if !slices.ContainsFunc(list.Pools, func(p status.Pool) bool { return p.Name == name }) {
			errs = append(errs, fmt.Errorf("there is no pool %q %s; `idlecount status -A -o name` lists those that exist", name, o.where()))
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

// completePools offers the names of pools to the shell. Whatever goes wrong, the user sees no offers rather than errors.
func (o *statusOptions) completePools(cmd *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
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
	var names []string
	for _, p := range list.Pools {
		if !slices.Contains(given, p.Name) {
			names = append(names, p.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
