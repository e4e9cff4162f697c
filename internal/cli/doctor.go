package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"

	"idlecount.dev/idlecount/preflight"
)

type doctorOptions struct {
	genericiooptions.IOStreams
	connection     connection
	files          []string
	leaseNamespace string
	manager        string // NAMESPACE/NAME, "" = whoever runs the command
	driver         string
	output         string

	accounts [2]preflight.Account // of the manager and of the driver
}

func newDoctor(streams genericiooptions.IOStreams) *cobra.Command {
	o := &doctorOptions{IOStreams: streams, connection: newConnection()}
	o.connection.flags.Namespace = nil // the namespaces are those of the runners
	o.connection.flags.WithWrapConfigFn(func(cfg *rest.Config) *rest.Config {
		cfg.WarningHandler = rest.NoWarnings{} // they are results here
		return cfg
	})
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find out what would keep pods from being made and started",
		Long: `Look, before jobs do, for what would keep the pods of a config.toml from being made and started, and say what to do:

  version    does the cluster run sidecar containers, which services of jobs are
  clock      does this machine agree with the API server on the time
  namespace  is each namespace there
  rights     what the manager, its lease and the driver need of RBAC
  admission  does the API server take an idle pod of each pool and a pause pod of each capacity (a dry run): Pod Security,
             LimitRanges, policies …
  quota      is there room for all idle pods and pause pods when the policies want most, and for jobs beside these
  priority   can jobs take the place of pause pods
  buffer     does the cluster have CapacityBuffers, where a runner wants some
  image      does the registry have each image, for the pull secrets of the runner

Nothing is changed, no image is pulled. Each check is ok, warn, fail or unknown, which is what can't be found out with
the rights, or from the network, of whoever asks. The exit code is 1 if one fails. A manager makes the same checks when
it starts and logs what is wrong.`,
		Example: `  idlecount doctor --config config.toml

  # With the rights of the service accounts that will do the work
  idlecount doctor --config config.toml \
    --manager-service-account idlecount/idlecount --driver-service-account gitlab-runner/gitlab-runner

  # What fails, for a script
  idlecount doctor -o json | jq -r '.checks[] | select(.status == "fail") | "\(.object): \(.message)"'`,
		Args: args(cobra.NoArgs),
		RunE: perform(o),
	}
	addConfig(cmd, &o.files)
	addOutput(cmd, &o.output, "wide", "json", "yaml")
	cmd.Flags().StringVar(&o.manager, "manager-service-account", "", "NAMESPACE/NAME of the manager's service account (default: whoever asks)")
	cmd.Flags().StringVar(&o.driver, "driver-service-account", "", "NAMESPACE/NAME of the service account that GitLab Runner has (default: whoever asks)")
	cmd.Flags().StringVar(&o.leaseNamespace, "leader-elect-namespace", "",
		"namespace of the managers' lease (default: that of the manager's service account, else of the context)")
	o.connection.addFlags(cmd.Flags())
	return cmd
}

func (o *doctorOptions) complete(*cobra.Command, []string) error {
	o.files = configFiles(o.files)
	for i, text := range []string{o.manager, o.driver} {
		o.accounts[i].Namespace, o.accounts[i].Name, _ = strings.Cut(text, "/")
	}
	if o.leaseNamespace == "" {
		o.leaseNamespace = o.accounts[0].Namespace
	}
	if o.leaseNamespace == "" {
		var err error
		o.leaseNamespace, err = o.connection.namespace()
		return err
	}
	return nil
}

func (o *doctorOptions) validate(cmd *cobra.Command) error {
	for i, flag := range []string{"manager-service-account", "driver-service-account"} {
		a, text := o.accounts[i], []string{o.manager, o.driver}[i]
		if text != "" && (len(validation.IsDNS1123Label(a.Namespace)) > 0 || len(validation.IsDNS1123Subdomain(a.Name)) > 0) {
			return usage(cmd, "--%s %q: want NAMESPACE/NAME", flag, text)
		}
	}
	return oneOf(cmd, "output", o.output, "wide", "json", "yaml")
}

func (o *doctorOptions) run(ctx context.Context) error {
	cfg, cluster, err := configured(o.files, o.connection, o.ErrOut)
	if err != nil {
		return err
	}
	results, err := preflight.Run(ctx, preflight.Options{
		Client: cluster, Config: cfg, LeaseNamespace: o.leaseNamespace, Manager: &o.accounts[0], Driver: &o.accounts[1],
	})
	if err != nil {
		return cluster.explain(err)
	}
	if err := o.print(results); err != nil {
		return err
	}
	found := map[preflight.Status]int{}
	for _, r := range results {
		found[r.Status]++
	}
	say(o.ErrOut, fmt.Sprintf("%s: %d ok, %d unknown, %s, %d failed", count(len(results), "check"),
		found[preflight.OK], found[preflight.Unknown], count(found[preflight.Warn], "warning"), found[preflight.Fail]))
	if found[preflight.Fail] > 0 {
		return errReported
	}
	return nil
}

func (o *doctorOptions) print(results []preflight.Result) error {
	list := struct {
		Checks []preflight.Result `json:"checks"`
	}{results}
	switch o.output {
	case "json":
		return writeJSON(o.Out, list)
	case "yaml":
		return writeYAML(o.Out, list)
	case "wide":
		return writeChecks(o.Out, results)
	default:
		return writeChecks(o.Out, fold(results))
	}
}

// fold makes one of all good results of a check, so that the others are seen.
func fold(results []preflight.Result) []preflight.Result {
	var folded []preflight.Result
	first, good, all := map[preflight.Check]int{}, map[preflight.Check][]string{}, map[preflight.Check]int{}
	for _, r := range results {
		all[r.Check]++
		if r.Status == preflight.OK {
			good[r.Check] = append(good[r.Check], place(r))
			if len(good[r.Check]) > 1 {
				continue
			}
			first[r.Check] = len(folded)
		}
		folded = append(folded, r)
	}
	for check, i := range first {
		if names := good[check]; len(names) > 1 {
			folded[i] = preflight.Result{Check: check, Status: preflight.OK, Message: fmt.Sprintf("%d of %d: %s", len(names), all[check], some(names))}
		}
	}
	return folded
}

// some names the first of many.
func some(names []string) string {
	const most = 3
	if len(names) <= most+1 {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// place is what a result is about: an object, and where it is.
func place(r preflight.Result) string {
	switch {
	case r.Object == "":
		return r.Namespace
	case r.Namespace == "" || r.Check == preflight.Image:
		return r.Object
	default:
		return r.Namespace + "/" + r.Object
	}
}

func writeChecks(w io.Writer, results []preflight.Result) error {
	t := newTable("CHECK", "STATUS", "WHAT")
	for _, r := range results {
		what := oneLine(r.Message)
		if at := place(r); at != "" {
			what = at + ": " + what
		}
		t.add([]string{string(r.Check), string(r.Status), what}, r.Fix)
	}
	var b strings.Builder
	if err := t.write(&b); err != nil {
		return err
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// oneLine folds the server's words into the one line that a table has for them.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
