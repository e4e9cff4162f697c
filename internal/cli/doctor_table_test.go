package cli

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/preflight"
)

func someChecks() []preflight.Result {
	return []preflight.Result{
		{Check: preflight.Version, Status: preflight.OK, Message: "Kubernetes v1.37.2"},
		{Check: preflight.Clock, Status: preflight.Warn, Message: "the clock of this machine is 7s behind the API server's", Fix: "synchronise both by NTP"},
		{Check: preflight.Rights, Status: preflight.OK, Namespace: "idlecount", Object: "lease", Message: "jane has all 4 rights"},
		{Check: preflight.Rights, Status: preflight.Fail, Namespace: "ci", Object: "manager", Message: "jane can't keep pools", Fix: "apply the Roles"},
		{Check: preflight.Rights, Status: preflight.OK, Namespace: "ci", Object: "driver", Message: "jane has all 10 rights"},
		{Check: preflight.Admission, Status: preflight.Fail, Namespace: "ci", Object: "fakefakef-0a1b2c3d4e", Message: "the API server refuses its pods:\n violates PodSecurity"},
		{Check: preflight.Quota, Status: preflight.OK, Namespace: "ci", Message: "the namespace has no ResourceQuota"},
		{Check: preflight.Image, Status: preflight.OK, Object: "a:1", Message: "exists"},
		{Check: preflight.Image, Status: preflight.OK, Object: "b:1", Message: "exists"},
		{Check: preflight.Image, Status: preflight.Unknown, Object: "c:1", Message: "can't be asked for from here: no answer", Fix: "see whether the nodes reach it"},
		{Check: preflight.Image, Status: preflight.OK, Namespace: "ci", Object: "d:1", Message: "exists, with the login in secret s"},
		{Check: preflight.Image, Status: preflight.OK, Object: "e:1", Message: "exists"},
		{Check: preflight.Image, Status: preflight.OK, Object: "f:1", Message: "exists"},
	}
}

func TestTablesOfChecks(t *testing.T) {
	for name, results := range map[string][]preflight.Result{
		"doctor.txt":      fold(someChecks()),
		"doctor-wide.txt": someChecks(),
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			require.NoError(t, writeChecks(&b, results))
			golden(t, name, b.String())
		})
	}
}
