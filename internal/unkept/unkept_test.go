package unkept

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAListNamesWhatIsntKept(t *testing.T) {
	l := &List{}
	require.Empty(t, l.Reasons())
	l.Set("pool ci/b", "no rights")
	l.Set("pool ci/a", "taken")
	l.Set("pool ci/a", "left")
	l.Drop("pool ci/none")
	require.Equal(t, []string{"pool ci/a isn't kept: left", "pool ci/b isn't kept: no rights"}, l.Reasons())
	l.Drop("pool ci/a")
	require.Equal(t, []string{"pool ci/b isn't kept: no rights"}, l.Reasons())
	l.Clear()
	require.Empty(t, l.Reasons())
}
