package preflight

import (
	"context"
	"slices"

	"idlecount.dev/idlecount/capacity"
	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/factory"
)

// buffers finds out whether the cluster has CapacityBuffers, where a runner wants some.
func buffers(ctx context.Context, o Options) []Result {
	if !slices.ContainsFunc(o.Config.Runners, func(r config.Runner) bool {
		return r.Managed() && r.Kubernetes.IdleStrategy == config.StrategyBuffer
	}) {
		return nil
	}
	r := Result{Check: Buffer, Object: factory.CapacityBufferGroup}
	version, err := capacity.BufferVersion(ctx, o.Client)
	switch {
	case err != nil:
		r = unknown(r, "can't see which APIs the cluster has", err, "")
	case version == "":
		r.Status = Fail
		r.Message, r.Fix = capacity.NoBuffers()
	default:
		r.Status, r.Message = OK, "the cluster has CapacityBuffers, in version "+version
	}
	return []Result{r}
}
