package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/klog/v2"

	"idlecount.dev/idlecount/capacity"
	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/internal/cli/manifests"
	"idlecount.dev/idlecount/internal/reload"
	"idlecount.dev/idlecount/internal/version"
	"idlecount.dev/idlecount/pool"
)

type runOptions struct {
	genericiooptions.IOStreams
	connection     connection
	files          []string
	listenAddress  string
	leaseNamespace string
	logFormat      string
	logLevel       string
}

func newRun(streams genericiooptions.IOStreams) *cobra.Command {
	o := &runOptions{IOStreams: streams, connection: newConnection()}
	o.connection.flags.Namespace = nil // the namespaces of pools are those of the runners
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the manager: keep the pools of a config.toml filled",
		Long: `Run the manager, which keeps as many idle pods for each image as the policy in force wants, until it is
told to stop by TERM or INT. It may run in a cluster or beside GitLab Runner, and more than once: one leads, the others
wait for the lease. No pod is touched when it stops or starts: jobs go on claiming pods, and idle pods that nobody
replaces end after their idle_time. A change of the files comes into force by itself, at once with SIGHUP; where they can't
be loaded the configuration before stays in force, and the log, status and metrics say so.

The cluster is that of --kubeconfig, --server, --context or KUBECONFIG; else that of host or context in
[runners.kubernetes]; else the one that the manager runs in. The log goes to stderr.
The --listen-address serves /metrics (Prometheus), /healthz (it works) and /readyz (it leads, or waits to).`,
		Example: `  idlecount run --config /etc/gitlab-runner/config.toml

  # GitLab's file stays free of unknown keys, idlecount's are in a second one
  idlecount run --config /etc/gitlab-runner/config.toml --config /etc/idlecount/idle.toml

  # On a laptop, against the cluster of a context, with no port open
  idlecount run --config config.toml --context staging --listen-address "" --log-level debug`,
		Args: args(cobra.NoArgs),
		RunE: perform(o),
	}
	addConfig(cmd, &o.files)
	cmd.Flags().StringVar(&o.listenAddress, "listen-address", fmt.Sprintf(":%d", manifests.MetricsPort), `HOST:PORT or :PORT of /metrics, /healthz and /readyz; "" for none`)
	cmd.Flags().StringVar(&o.leaseNamespace, "leader-elect-namespace", "", "namespace of the lease by which managers elect a leader (default: that of the pod or of the context)")
	cmd.Flags().StringVar(&o.logFormat, "log-format", "text", "text or json")
	cmd.Flags().StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
	o.connection.addFlags(cmd.Flags())
	return cmd
}

func (o *runOptions) complete(*cobra.Command, []string) error {
	o.files = configFiles(o.files)
	return nil
}

func (o *runOptions) validate(cmd *cobra.Command) error {
	if err := oneOf(cmd, "log-format", o.logFormat, "text", "json"); err != nil {
		return err
	}
	if err := oneOf(cmd, "log-level", o.logLevel, "debug", "info", "warn", "error"); err != nil {
		return err
	}
	if o.leaseNamespace != "" && len(validation.IsDNS1123Label(o.leaseNamespace)) > 0 {
		return usage(cmd, "--leader-elect-namespace %q: not a name that a namespace can have", o.leaseNamespace)
	}
	if _, _, err := net.SplitHostPort(o.listenAddress); o.listenAddress != "" && err != nil {
		return usage(cmd, `--listen-address %q: want HOST:PORT, :PORT, or "" for none`, o.listenAddress)
	}
	return nil
}

func (o *runOptions) run(ctx context.Context) error {
	log := o.logger()
	klog.SetSlogLogger(log) // client-go's own messages
	since := reload.StateOf(o.files)
	cfg, err := loadConfig(o.files, o.ErrOut)
	if err != nil {
		return err
	}
	logWarnings(log, cfg)
	cluster, err := o.connection.connectAs(cfg)
	if err != nil {
		return err
	}
	if o.leaseNamespace == "" {
		if o.leaseNamespace, err = o.connection.namespace(); err != nil {
			return err
		}
	}
	identity, err := identity()
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	health := &pool.Health{}
	stop, err := serve(o.listenAddress, pool.Handler(registry, health), log) //nolint:contextcheck // stop has a context of its own
	if err != nil {
		return err
	}
	defer stop()
	log.Info("idlecount starts", "version", version.String(), "server", cluster.server, "from", cluster.source, "identity", identity)
	look, endLooking := inspect(ctx, cluster, o.leaseNamespace, log)
	defer endLooking()
	look(cfg)
	reloads, endReloads := o.watchFiles(ctx, since, look, log)
	defer endReloads()
	keeper, err := capacity.New(capacity.Options{
		Client: cluster, LeaseNamespace: o.leaseNamespace, LeaseName: pool.DefaultLeaseName, Log: log, Registry: registry,
	})
	if err != nil {
		return err
	}
	err = pool.Run(ctx, pool.Options{
		Client: cluster, Config: cfg, Reloads: reloads,
		Identity: identity, LeaseNamespace: o.leaseNamespace,
		Log: log, Registry: registry, Health: health,
		Beside: keeper,
	})
	if err != nil && ctx.Err() == nil {
		return cluster.explain(err)
	}
	log.Info("idlecount stops; pods stay as they are")
	return nil
}

// watchFiles loads the files again whenever they change, and at SIGHUP, until end is called. look is told of what can be used.
func (o *runOptions) watchFiles(ctx context.Context, since reload.State, look func(*config.Config), log *slog.Logger) (reloads <-chan pool.Reload, end func()) {
	ctx, cancel := context.WithCancel(ctx)
	loaded := make(chan pool.Reload)
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	var watching sync.WaitGroup
	watching.Go(func() {
		reload.Watch(ctx, o.files, since, hangups, log, func(hurried bool) {
			log.Info("the configuration is loaded again", "files", strings.Join(o.files, ", "), "sighup", hurried)
			cfg, err := readConfig(o.files)
			if err == nil {
				logWarnings(log, cfg)
				look(cfg)
			}
			select {
			case loaded <- pool.Reload{Config: cfg, Err: err}:
			case <-ctx.Done():
			}
		})
	})
	return loaded, func() {
		cancel()
		signal.Stop(hangups)
		watching.Wait()
	}
}

func logWarnings(log *slog.Logger, cfg *config.Config) {
	for _, w := range cfg.Warnings {
		log.Warn("configuration: "+strings.TrimSpace(w.Path+" "+w.Message), "file", w.File)
	}
}

func (o *runOptions) logger() *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(o.logLevel)) // validated
	options := &slog.HandlerOptions{Level: level}
	if o.logFormat == "json" {
		return slog.New(slog.NewJSONHandler(o.ErrOut, options))
	}
	return slog.New(slog.NewTextHandler(o.ErrOut, options))
}

// identity names this manager in the lease. It is new with each start: were it only the host's name, two managers on one
// host would both believe that they lead.
func identity() (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("find the name of this host: %w", err)
	}
	return host + "_" + uuid.NewString(), nil
}

// shutdownTimeout bounds how long a scrape may hold up the end.
const shutdownTimeout = 2 * time.Second

// serve answers on an address until stop is called. Failing to listen is an error at once.
func serve(address string, handler http.Handler, log *slog.Logger) (stop func(), err error) {
	if address == "" {
		return func() {}, nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%w; --listen-address names another address, \"\" none", err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error("no longer serves metrics and probes", "address", address, "error", err)
		}
	}()
	log.Info("serves /metrics, /healthz and /readyz", "address", listener.Addr().String())
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout) // that of the command has ended
		defer cancel()
		_ = server.Shutdown(ctx)
		<-done
	}, nil
}
