package cli

import (
	"cmp"
	"errors"
	"io"
	"os"

	"github.com/hashicorp/go-multierror"
	"github.com/spf13/cobra"

	"idlecount.dev/idlecount/capacity"
	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/factory"
)

// defaultConfig is where GitLab Runner has its configuration when it runs as root.
const defaultConfig = "/etc/gitlab-runner/config.toml"

func addConfig(cmd *cobra.Command, target *[]string) {
	cmd.Flags().StringArrayVarP(target, "config", "c", nil,
		"GitLab Runner's config.toml; may be repeated, later files add to the [[runners]] entries of the same name (default: $CONFIG_FILE, else "+defaultConfig+")")
}

// configFiles fills in the file that GitLab Runner would read.
func configFiles(given []string) []string {
	if len(given) > 0 {
		return given
	}
	return []string{cmp.Or(os.Getenv("CONFIG_FILE"), defaultConfig)}
}

// readConfig reads the configuration as everything that acts by it does: what one command refuses all refuse.
func readConfig(files []string) (*config.Config, error) { return config.Load(files, capacity.Judge) }

// loadConfig reads the configuration. Its problems go to stderr, one a line.
func loadConfig(files []string, stderr io.Writer) (*config.Config, error) {
	cfg, err := readConfig(files)
	if err == nil {
		return cfg, nil
	}
	for _, problem := range problems(err) {
		say(stderr, "error: "+problem.Error())
	}
	return nil, errReported
}

// configured reads the configuration, its warnings to stderr, and finds the cluster that it is for.
func configured(files []string, c connection, stderr io.Writer) (*config.Config, *cluster, error) {
	cfg, err := loadConfig(files, stderr)
	if err != nil {
		return nil, nil, err
	}
	for _, w := range cfg.Warnings {
		say(stderr, "warning: "+w.Error())
	}
	cluster, err := c.connectAs(cfg)
	return cfg, cluster, err
}

// problems takes the errors out of one that holds several.
func problems(err error) []error {
	if all, ok := errors.AsType[*multierror.Error](err); ok {
		return all.Errors
	}
	return []error{err}
}

// configuredPool is a pool that a configuration asks for.
type configuredPool struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	Runner    string `json:"runner"`
	Image     string `json:"image"`
	Shape     string `json:"shape"`
	IdleCount int    `json:"idle_count"` // of the table itself, when no policy matches
	IdleTime  string `json:"idle_time"`
	Policies  int    `json:"policies"` // how many [[idle_policy]] tables may change that
}

// configuredPools resolves the pools of a configuration: one for each image of each runner that may ever want idle pods.
func configuredPools(cfg *config.Config) ([]configuredPool, error) {
	pools := []configuredPool{}
	var errs *multierror.Error
	for _, r := range cfg.Runners {
		if !r.Managed() {
			continue
		}
		if !r.KeepsPods() {
			continue
		}
		for _, image := range r.IdleImages() {
			schedule, err := r.ScheduleFor(image)
			if err != nil {
				errs = multierror.Append(errs, err)
				continue
			}
			if !schedule.EverWants() {
				continue
			}
			shape, err := factory.ShapeOf(r, factory.Job{Image: image})
			if err != nil {
				errs = multierror.Append(errs, err)
				continue
			}
			pools = append(pools, configuredPool{
				Name: factory.PoolName(r, shape), Namespace: r.Kubernetes.Namespace, Runner: r.Name,
				Image: image, Shape: shape.Hash(),
				IdleCount: schedule.Default.IdleCount, IdleTime: schedule.Default.IdleTime.String(), Policies: len(schedule.Policies),
			})
		}
	}
	return pools, errs.ErrorOrNil()
}
