package preflight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"

	"idlecount.dev/idlecount/config"
)

// Options are what Run needs.
type Options struct {
	Client         kubernetes.Interface
	Config         *config.Config
	LeaseNamespace string // of the managers' lease

	// Whose rights are looked at; nil = nobody's.
	Manager, Driver *Account

	Now func() time.Time // default time.Now
}

// Account is a service account. The zero value is whoever Client is.
type Account struct{ Namespace, Name string }

// Check is a kind of question.
type Check string

// The checks, in the order of their results.
const (
	Version   Check = "version"   // of Kubernetes
	Clock     Check = "clock"     // of this machine, against the API server's
	Namespace Check = "namespace" // is it there, one for each
	Rights    Check = "rights"    // RBAC, one result for each role and namespace
	Admission Check = "admission" // would the API server take the pods: Pod Security, LimitRanges, policies, one for each pool and capacity
	Quota     Check = "quota"     // room for all idle pods and pause pods, one for each ResourceQuota
	Priority  Check = "priority"  // can jobs take the place of pause pods, one for each class of these and of jobs
	Buffer    Check = "buffer"    // does the cluster have CapacityBuffers, where a runner wants some
	Image     Check = "image"     // one for each image
)

// Status is how a check came out.
type Status string

// The states, from good to bad; Unknown is what couldn't be found out.
const (
	OK      Status = "ok"
	Unknown Status = "unknown"
	Warn    Status = "warn"
	Fail    Status = "fail"
)

// Result is the answer to one question. The names in its JSON are an interface: docs/cli.md describes them.
type Result struct {
	Check     Check  `json:"check"`
	Status    Status `json:"status"`
	Namespace string `json:"namespace,omitempty"`
	Object    string `json:"object,omitempty"` // what was looked at: an image, a pool, a capacity, a ResourceQuota, a PriorityClass, a role
	Message   string `json:"message"`
	Fix       string `json:"fix,omitempty"` // what to do, where something is to be done
}

const (
	requestTimeout = 10 * time.Second
	// atOnce bounds the questions that are asked at the same time.
	atOnce = 8
)

// Run makes all checks. The error is that of an API server that can't be reached or doesn't accept the credentials, or of a
// configuration that makes no pods; everything else is a result.
func Run(ctx context.Context, o Options) ([]Result, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	targets, err := targetsOf(o.Config)
	if err != nil {
		return nil, err
	}
	results, err := server(ctx, o, targets)
	if err != nil {
		return nil, err
	}
	there, missing := namespaces(ctx, o)
	results = append(results, there...)
	o, targets = o.without(missing), slices.DeleteFunc(targets, func(p *target) bool { return missing[p.namespace()] })
	pauses, err := pausesOf(ctx, o)
	if err != nil {
		return nil, err
	}
	targets = append(targets, pauses...)
	results = append(results, rights(ctx, o)...)
	results = append(results, admission(ctx, o, targets)...)
	results = append(results, quotas(ctx, o, targets)...)
	results = append(results, priorities(ctx, o)...)
	results = append(results, buffers(ctx, o)...)
	results = append(results, images(ctx, o, targets)...)
	return results, ctx.Err()
}

// words are what the API server says, without what client-go puts around it.
func words(err error) string {
	if s := apierrors.APIStatus(nil); errors.As(err, &s) && s.Status().Message != "" {
		return s.Status().Message
	}
	return err.Error()
}

// unknown is the result of a question that was not answered.
func unknown(r Result, what string, err error, fix string) Result {
	r.Status, r.Message, r.Fix = Unknown, fmt.Sprintf("%s: %s", what, words(err)), fix
	return r
}
