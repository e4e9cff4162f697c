package cli

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/config"
)

func TestWarningsOfWhatACommandUsesAreThoseOfTheCommand(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(warnings{to: &out})
	log.Info("nobody has asked")
	log.Warn("can't see the quotas", "namespace", "ci", "error", errors.New("no\nright"))
	log.With("second", config.Runner{Name: "ci", Token: "glrt-abcdefghijklmnop"}).Warn("two make one")
	log.Error("nothing more")
	require.Equal(t, "warning: can't see the quotas (namespace ci): no right\nwarning: two make one (second [name=ci id=abcdefghi])\nwarning: nothing more\n", out.String())
}
