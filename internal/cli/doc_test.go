package cli

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/capacity"
	capacitystatus "idlecount.dev/idlecount/capacity/status"
	"idlecount.dev/idlecount/pool"
	"idlecount.dev/idlecount/pool/status"
	"idlecount.dev/idlecount/preflight"
)

// TestTheManualHasEveryField: the JSON is an interface, and a field that nobody can look up is none.
func TestTheManualHasEveryField(t *testing.T) {
	manual, err := os.ReadFile("../../docs/cli.md")
	require.NoError(t, err)
	for _, of := range []reflect.Type{
		reflect.TypeFor[statusList](), reflect.TypeFor[status.Pool](), reflect.TypeFor[status.Pod](), reflect.TypeFor[status.Shortfall](),
		reflect.TypeFor[status.Manager](), reflect.TypeFor[capacitystatus.Row](), reflect.TypeFor[modeResult](), reflect.TypeFor[modeList](), reflect.TypeFor[planList](), reflect.TypeFor[capacity.Preview](), reflect.TypeFor[scheduleList](), reflect.TypeFor[timetable](), reflect.TypeFor[slot](),
		reflect.TypeFor[note](), reflect.TypeFor[pool.Preview](), reflect.TypeFor[pool.PreviewDeletion](), reflect.TypeFor[preflight.Result](), reflect.TypeFor[configuredPool](), reflect.TypeFor[configuredCapacity](), reflect.TypeFor[build](),
	} {
		for field := range of.Fields() {
			if !field.IsExported() {
				continue
			}
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			require.NotEmpty(t, name, "%s.%s", of, field.Name)
			require.Regexp(t, "`(\\.)?"+name+"(\\[\\])?`", string(manual), "docs/cli.md doesn't have %s of %s", name, of)
		}
	}
	for _, check := range []preflight.Check{
		preflight.Version, preflight.Clock, preflight.Namespace, preflight.Rights, preflight.Admission, preflight.Quota, preflight.Priority,
		preflight.Buffer, preflight.Image,
	} {
		require.Contains(t, string(manual), "| `"+string(check)+"` |")
	}
	for _, reason := range []status.Reason{
		status.ImagePull, status.Quota, status.Admission, status.Unschedulable, status.Crash, status.Config, status.Slow, status.Limit,
		status.Access, status.API,
	} {
		require.Contains(t, string(manual), "`"+string(reason)+"`")
	}
}
