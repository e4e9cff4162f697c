//go:build linux

package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/entrypoint/wire"
)

func TestSmoke(t *testing.T) {
	p, _ := claimedPod(t)
	out, exit := p.script(t, wire.Build, "a", "#!/usr/bin/env bash\necho hi; echo err >&2; exit 3")
	require.Equal(t, "hi\nerr\n", out)
	require.Equal(t, wire.Exit{Code: 3, Offset: 7}, exit)
}
