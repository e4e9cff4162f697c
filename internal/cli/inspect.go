package cli

import (
	"context"
	"log/slog"
	"sync"

	"k8s.io/client-go/kubernetes"

	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/preflight"
)

// inspect makes the checks of `idlecount doctor` in the background, for each configuration that ask is called with, and
// logs what is wrong; of configurations that come faster than they are looked at only the last. Nothing depends on what
// is found: a manager keeps what pools it can. The checks of the driver's rights are left out: it has an account of its own.
func inspect(ctx context.Context, client kubernetes.Interface, leaseNamespace string, log *slog.Logger) (ask func(*config.Config), end func()) {
	ctx, cancel := context.WithCancel(ctx)
	configs := make(chan *config.Config, 1)
	var inspecting sync.WaitGroup
	inspecting.Go(func() {
		said := map[string]bool{}
		for {
			select {
			case <-ctx.Done():
				return
			case cfg := <-configs:
				results, err := preflight.Run(ctx, preflight.Options{
					Client: client, Config: cfg, LeaseNamespace: leaseNamespace, Manager: &preflight.Account{},
				})
				if ctx.Err() != nil {
					return
				}
				if err != nil {
					log.Warn("can't check what would keep pods from starting", "error", err)
					continue
				}
				said = logFindings(log, results, said)
			}
		}
	})
	ask = func(cfg *config.Config) {
		select {
		case <-configs: // not looked at yet, and no longer of interest
		default:
		}
		configs <- cfg
	}
	return ask, func() {
		cancel()
		inspecting.Wait()
	}
}

// logFindings logs bad results that weren't said the last time, and returns those that have been said by now.
func logFindings(log *slog.Logger, results []preflight.Result, before map[string]bool) (said map[string]bool) {
	said = map[string]bool{}
	found := map[preflight.Status]int{}
	for _, r := range results {
		found[r.Status]++
		if r.Status != preflight.Fail && r.Status != preflight.Warn {
			continue
		}
		key := string(r.Check) + " " + place(r) + " " + r.Message
		if said[key] = true; before[key] {
			continue
		}
		log.Warn("preflight: "+oneLine(r.Message), "check", r.Check, "status", r.Status, "namespace", r.Namespace, "object", r.Object, "fix", r.Fix)
	}
	log.Info("preflight checks are done; `idlecount doctor` shows them",
		"ok", found[preflight.OK], "unknown", found[preflight.Unknown], "warn", found[preflight.Warn], "fail", found[preflight.Fail])
	return said
}
