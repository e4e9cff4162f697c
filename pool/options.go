package pool

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"idlecount.dev/idlecount/config"
)

// DefaultLeaseName is the name of the managers' lease where Options name none.
const DefaultLeaseName = "idlecount"

// Options are what Run needs. All are wanted but those that have a default.
type Options struct {
	Client kubernetes.Interface
	Config *config.Config // at the start

	// Reloads are what becomes of the configuration file later; nil where nobody watches it. Each is taken over, or
	// rejected, without another start and without giving up the lease.
	Reloads <-chan Reload

	Beside Beside // nil where there is nothing

	Identity       string // of this process among the managers that share a lease; two processes never have the same
	LeaseNamespace string
	LeaseName      string // default DefaultLeaseName

	Log      *slog.Logger         // default slog.Default()
	Registry *prometheus.Registry // default: one that nobody reads
	Health   *Health              // default: one that nobody reads
	Clock    clock.WithTicker     // default: the system's

	// Times of the leader election; the defaults are 9, 6 and 1 seconds. One that stands by looks at the lease every RetryPeriod
	// and up to 1.2 times more, so it leads at most LeaseDuration and 4.4 RetryPeriods after the leader has died.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
}

// Beside is what else is to be done by one manager only, beside pools.
type Beside interface {
	// Lead runs in each of this manager's terms. It has to return when ctx ends; no other manager leads before. current is the
	// configuration in force, why the file as it is now isn't ("" where it is), and what is closed when either changes.
	Lead(ctx context.Context, current func() (cfg *config.Config, rejected string, changed <-chan struct{}))
	// Unkept are lines for /readyz: what can't be kept at all.
	Unkept() []string
}

func (o Options) withDefaults() (Options, error) {
	switch {
	case o.Client == nil:
		return o, errors.New("pool: no client was given")
	case o.Config == nil:
		return o, errors.New("pool: no configuration was given")
	case o.Identity == "":
		return o, errors.New("pool: no identity was given")
	case o.LeaseNamespace == "":
		return o, errors.New("pool: no namespace was given for the lease")
	}
	o.LeaseName = cmp.Or(o.LeaseName, DefaultLeaseName)
	o.LeaseDuration = cmp.Or(o.LeaseDuration, 9*time.Second)
	o.RenewDeadline = cmp.Or(o.RenewDeadline, 6*time.Second)
	o.RetryPeriod = cmp.Or(o.RetryPeriod, time.Second)
	o.Log = cmp.Or(o.Log, slog.Default())
	o.Registry = cmp.Or(o.Registry, prometheus.NewRegistry())
	o.Health = cmp.Or(o.Health, &Health{})
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return o, nil
}

// lease is the lease's name as pools' anchors have it.
func (o Options) lease() string { return o.LeaseNamespace + "/" + o.LeaseName }
