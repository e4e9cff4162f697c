package preflight

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/version"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"
)

// sidecarsSince is the first version that runs an init container with restartPolicy Always beside the others, unless told
// otherwise: the services of jobs are such containers.
const sidecarsSince = "1.29.0"

// Clocks may differ by the second that a Date header has, and by what the answer takes.
const (
	clockWarn = 5 * time.Second
	// A pod that should have ended itself this long ago is removed by the manager (pool/plan).
	clockFail = time.Minute
)

// server asks the API server for its version, and looks at the time that it says it is. Its error ends all checks: who
// can't be asked this can't be asked anything.
func server(ctx context.Context, o Options, targets []*target) ([]Result, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	client, ok := o.Client.Discovery().RESTClient().(*rest.RESTClient)
	if !ok || client == nil || client.Client == nil {
		return nil, fmt.Errorf("the client can't make plain requests")
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, client.Get().AbsPath("/version").URL().String(), nil)
	if err != nil {
		return nil, err
	}
	before := o.Now()
	response, err := client.Client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask the API server for its version: %w", err)
	}
	after := o.Now()
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return nil, fmt.Errorf("read the API server's version: %w", err)
	}
	if response.StatusCode == http.StatusUnauthorized {
		return nil, apierrors.NewUnauthorized("the API server doesn't accept the credentials")
	}
	services := false
	for _, p := range targets {
		services = services || p.services
	}
	return []Result{versionOf(response.StatusCode, body, services), clockOf(response.Header.Get("Date"), before, after)}, nil
}

// versionOf judges the answer to GET /version. services says whether the configuration has any.
func versionOf(status int, body []byte, services bool) Result {
	r := Result{Check: Version}
	var info apiversion.Info
	if status != http.StatusOK || json.Unmarshal(body, &info) != nil {
		r.Status, r.Message = Unknown, fmt.Sprintf("the API server doesn't say its version (HTTP status %d)", status)
		return r
	}
	v, err := version.ParseGeneric(info.GitVersion)
	if err != nil {
		r.Status, r.Message = Unknown, fmt.Sprintf("the API server says that its version is %q", info.GitVersion)
		return r
	}
	r.Message = "Kubernetes " + info.GitVersion
	if v.AtLeast(version.MustParseGeneric(sidecarsSince)) {
		r.Status = OK
		return r
	}
	r.Status, r.Fix = Warn, "upgrade the cluster, or let no job have services"
	r.Message += ": jobs that have services don't start before 1.29, which runs sidecar containers"
	if services {
		r.Status, r.Fix = Fail, "upgrade the cluster, or take the services out of [runners.kubernetes]"
	}
	return r
}

// clockOf compares the Date header of an answer with our own time before and after it.
func clockOf(date string, before, after time.Time) Result {
	r := Result{Check: Clock}
	theirs, err := http.ParseTime(date)
	if err != nil {
		r.Status, r.Message = Unknown, "the API server doesn't say what time it is"
		return r
	}
	// The header was true at some time between before and after, for up to a second.
	ahead, behind := before.Sub(theirs.Add(time.Second)), theirs.Sub(after)
	off, direction := ahead, "ahead of"
	if behind > ahead {
		off, direction = behind, "behind"
	}
	switch {
	case off <= clockWarn:
		r.Status, r.Message = OK, "this machine and the API server agree on the time"
		return r
	case off <= clockFail:
		r.Status = Warn
	default:
		r.Status = Fail
	}
	r.Message = fmt.Sprintf("the clock of this machine is %s %s the API server's", off.Round(time.Second), direction)
	r.Fix = "synchronise both by NTP: periods, idle times and the lease are judged by this machine's clock, pods' ages by the API server's"
	return r
}
