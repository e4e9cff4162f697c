package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/hashicorp/go-multierror"
	"github.com/spf13/cobra"

	"idlecount.dev/idlecount/capacity"
	"idlecount.dev/idlecount/capacity/patch"
	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/cron"
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

// configuredCapacity is room for jobs that a configuration asks for.
type configuredCapacity struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	Runner    string `json:"runner"`
	Image     string `json:"image,omitempty"` // the only job image that it is for
	Strategy  string `json:"strategy"`
	IdleCount int    `json:"idle_count"` // of the table itself, when no policy matches
	IdleTime  string `json:"idle_time"`
	Policies  int    `json:"policies"`
	Now       int    `json:"now"` // what the policy in force wants
}

// configuredList is what `validate` prints as JSON.
type configuredList struct {
	Pools    []configuredPool     `json:"pools"`
	Capacity []configuredCapacity `json:"capacity,omitempty"`
}

// configuredBy resolves what a configuration asks for: a pool for each image of each runner that may ever want idle pods, and
// the capacities that may ever want room.
func configuredBy(cfg *config.Config, now time.Time) (configuredList, error) {
	list := configuredList{Pools: []configuredPool{}}
	var errs *multierror.Error
	for _, r := range cfg.Runners {
		if !r.Managed() {
			continue
		}
		all, err := keptFor(r)
		if err != nil {
			errs = multierror.Append(errs, err)
		}
		for _, k := range all {
			if k.schedule.EverWants() {
				errs = multierror.Append(errs, list.add(r, k, now))
			}
		}
	}
	return list, errs.ErrorOrNil()
}

func (l *configuredList) add(r config.Runner, k kept, now time.Time) error {
	table := k.schedule.Default
	if k.strategy == config.StrategyPods {
		shape, err := factory.ShapeOf(r, factory.Job{Image: k.image})
		if err != nil {
			return err
		}
		l.Pools = append(l.Pools, configuredPool{
			Name: factory.PoolName(r, shape), Namespace: r.Kubernetes.Namespace, Runner: r.Name, Image: k.image, Shape: shape.Hash(),
			IdleCount: table.IdleCount, IdleTime: table.IdleTime.String(), Policies: len(k.schedule.Policies),
		})
		return nil
	}
	c, err := factory.CapacityOf(r, k.image, nil, patch.Apply)
	if err != nil {
		return err
	}
	calendar := cron.Calendar{Schedule: k.schedule}
	l.Capacity = append(l.Capacity, configuredCapacity{
		Name: c.Name, Namespace: c.Namespace, Runner: r.Name, Image: c.Image, Strategy: k.strategy,
		IdleCount: table.IdleCount, IdleTime: table.IdleTime.String(), Policies: len(k.schedule.Policies),
		Now: calendar.At(now).IdleCount,
	})
	return nil
}

// String is one line about all.
func (l configuredList) String() string {
	var parts []string
	if len(l.Pools) > 0 || len(l.Capacity) == 0 {
		parts = append(parts, count(len(l.Pools), "pool"))
	}
	if len(l.Capacity) > 0 {
		now := 0
		for _, c := range l.Capacity {
			now += c.Now
		}
		parts = append(parts, fmt.Sprintf("%s with room for %d now", count(len(l.Capacity), "capacity"), now))
	}
	return strings.Join(parts, ", ")
}
