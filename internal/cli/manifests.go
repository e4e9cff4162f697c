package cli

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"idlecount.dev/idlecount/capacity"
	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/internal/cli/manifests"
	needs "idlecount.dev/idlecount/internal/rights"
	"idlecount.dev/idlecount/internal/version"
	"idlecount.dev/idlecount/pool"
	"idlecount.dev/idlecount/pool/claim"
)

type manifestsOptions struct {
	genericiooptions.IOStreams
	files     []string
	namespace string
	image     string
	driver    string // NAMESPACE/NAME of an existing service account, "" = make one

	result manifests.Options
}

func newManifests(streams genericiooptions.IOStreams) *cobra.Command {
	o := &manifestsOptions{IOStreams: streams}
	cmd := &cobra.Command{
		Use:   "manifests --image IMAGE",
		Short: "Print the YAML that puts the manager into a cluster",
		Long: `Print the YAML that puts the manager into a cluster, for kubectl apply: service accounts for the manager and,
where a runner has executor = "custom", for GitLab Runner's driver, Roles with the least rights in each namespace of the runners (a comment says what needs each),
a PriorityClass for pause pods, the configuration as a Secret, and a Deployment that is valid where Pod Security
enforces "restricted". The namespaces have to exist.

--config says which namespaces the runners have. Its files go into the Secret cut down to what the manager reads:
runner tokens to the few characters that name the runner, credentials of caches, registries and clusters not at all.
Without --config there is no Secret, and the rights are for the manager's own namespace only.

Outside the manager's namespace names say whose an object is: idlecount is that of the manager in namespace idlecount,
idlecount-other that of one in namespace other. The PriorityClass is one for all of them.`,
		Example: `  kubectl create namespace idlecount
  idlecount manifests --config config.toml --image registry.example.com/idlecount | kubectl apply -f -

  # GitLab Runner is there already, with a service account of its own
  idlecount manifests --config config.toml --image registry.example.com/idlecount \
    --driver-service-account gitlab-runner/gitlab-runner | kubectl apply -f -

  # All of it away again, but for the PriorityClass; docs/install.md has what else there may be
  idlecount manifests --config config.toml --image registry.example.com/idlecount | kubectl delete -l app.kubernetes.io/component!=shared -f -`,
		Args: args(cobra.NoArgs),
		RunE: perform(o),
	}
	cmd.Flags().StringArrayVarP(&o.files, "config", "c", nil, "GitLab Runner's config.toml; may be repeated, as with run")
	cmd.Flags().StringVarP(&o.namespace, "namespace", "n", manifests.Name, "namespace of the manager")
	cmd.Flags().StringVar(&o.image, "image", releaseImage(), "image of the manager, in a registry that the cluster can pull from")
	cmd.Flags().StringVar(&o.driver, "driver-service-account", "",
		"NAMESPACE/NAME of the service account that GitLab Runner has (default: one is made, "+manifests.DriverName+" in the manager's namespace)")
	return cmd
}

func (o *manifestsOptions) complete(*cobra.Command, []string) error {
	o.result = manifests.Options{
		Namespace: o.namespace, Image: o.image,
		RunnerNamespaces: []string{o.namespace}, DriverNamespaces: []string{o.namespace},
		Driver:     types.NamespacedName{Namespace: o.namespace, Name: manifests.DriverName},
		MakeDriver: o.driver == "",
		Rights: manifests.Rights{
			Manager: managerRights(pool.Permissions()),
			Lease:   managerRights(pool.LeasePermissions()),
			Driver:  driverRights(claim.Rules()),
		},
	}
	if o.driver != "" {
		o.result.Driver.Namespace, o.result.Driver.Name, _ = strings.Cut(o.driver, "/")
	}
	return nil
}

func (o *manifestsOptions) validate(cmd *cobra.Command) error {
	if o.image == "" {
		return usage(cmd, "--image is needed: this binary is not a release, so no image belongs to it")
	}
	if strings.ContainsFunc(o.image, func(r rune) bool { return r <= ' ' }) {
		return usage(cmd, "--image %q: an image has no spaces", o.image)
	}
	if len(validation.IsDNS1123Label(o.namespace)) > 0 {
		return usage(cmd, "--namespace %q: not a name that a namespace can have", o.namespace)
	}
	if manifests.Ambiguous(o.namespace) {
		return usage(cmd, "--namespace %q: the Roles of a manager there would have the names of others of idlecount's; choose another name for the namespace", o.namespace)
	}
	if d := o.result.Driver; len(validation.IsDNS1123Label(d.Namespace)) > 0 || len(validation.IsDNS1123Subdomain(d.Name)) > 0 {
		return usage(cmd, "--driver-service-account %q: want NAMESPACE/NAME", o.driver)
	}
	return nil
}

func (o *manifestsOptions) run(context.Context) error {
	if len(o.files) > 0 {
		if err := o.readConfig(); err != nil {
			return err
		}
	}
	out, err := manifests.Render(o.result)
	if err != nil {
		return err
	}
	_, err = o.Out.Write(out)
	return err
}

// readConfig takes the namespaces of the runners and the content of the Secret from the files.
func (o *manifestsOptions) readConfig() error {
	cfg, err := loadConfig(o.files, o.ErrOut)
	if err != nil {
		return err
	}
	var contents [][]byte
	for _, file := range o.files {
		content, err := os.ReadFile(file) //nolint:gosec // the file that the user named
		if err != nil {
			return err
		}
		contents = append(contents, content)
	}
	if o.result.Config, err = manifests.ManagerConfig(cfg, contents); err != nil {
		return err
	}
	var namespaces, called []string
	rights, keeps, buffers := &o.result.Rights, false, false
	for _, r := range cfg.Runners {
		if r.Managed() {
			namespaces = append(namespaces, r.Kubernetes.Namespace)
			if r.Executor == config.ExecutorCustom {
				called = append(called, r.Kubernetes.Namespace)
			}
			keeps = keeps || r.KeepsCapacity()
			buffers = buffers || r.Kubernetes.IdleStrategy == config.StrategyBuffer
		}
	}
	if keeps {
		rights.Manager = slices.Concat(rights.Manager, managerRights(capacity.Permissions()))
		rights.Cluster = managerRights(capacity.ClusterPermissions())
	}
	if buffers {
		rights.Manager = slices.Concat(rights.Manager, managerRights(capacity.BufferPermissions()))
	}
	if len(namespaces) == 0 {
		return fmt.Errorf("no runner in %s is managed by idlecount: none has a [runners.kubernetes] table and executor = \"custom\", or an idle_strategy for its own executor", strings.Join(o.files, ", "))
	}
	if len(called) == 0 && o.driver != "" {
		say(o.ErrOut, "--driver-service-account has no effect: no runner has executor = \"custom\", so none calls the driver")
	}
	slices.Sort(namespaces)
	o.result.RunnerNamespaces, o.result.DriverNamespaces = slices.Compact(namespaces), called
	return nil
}

// releaseImage is the manager's image of this release, "" for a build that is none.
func releaseImage() string {
	if version.Tag() == version.Development {
		return ""
	}
	return "ghcr.io/idlecount/idlecount:" + version.Tag()
}

// managerRights and driverRights bring lists of rights, each written beside the code that needs them, into one form.
func managerRights(permissions []needs.Permission) []manifests.Right {
	var rights []manifests.Right
	for _, p := range permissions {
		for _, group := range p.APIGroups {
			for _, resource := range p.Resources {
				rights = append(rights, manifests.Right{Group: group, Resource: resource, Verbs: p.Verbs, Why: p.Why})
			}
		}
	}
	return rights
}

func driverRights(rules []claim.Rule) []manifests.Right {
	var rights []manifests.Right
	for _, r := range rules {
		rights = append(rights, manifests.Right{Group: r.Group, Resource: r.Resource, Verbs: r.Verbs, Why: r.Why})
	}
	return rights
}
