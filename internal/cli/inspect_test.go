package cli

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"idlecount.dev/idlecount/config"
)

func TestFindingsAreLoggedOnceUntilTheyChange(t *testing.T) {
	var b bytes.Buffer
	log := slog.New(slog.NewTextHandler(&b, nil))
	warnings := func() int { return strings.Count(b.String(), "level=WARN") }
	results := someChecks() // one warning, two failures

	said := logFindings(log, results, nil)
	require.Equal(t, 3, warnings(), b.String())
	require.Contains(t, b.String(), `msg="preflight: jane can't keep pools" check=rights status=fail namespace=ci object=manager fix="apply the Roles"`)
	require.Contains(t, b.String(), "ok=9 unknown=1 warn=1 fail=2")
	said = logFindings(log, results, said)
	require.Equal(t, 3, warnings(), "said before")
	said = logFindings(log, results[:2], said)
	require.Equal(t, 3, warnings(), "nothing is new")
	logFindings(log, results, said)
	require.Equal(t, 5, warnings(), "what was mended and is broken again is news")
}

// TestAnInspectionThatCannotAskEnds: the manager goes on, and its end doesn't wait for an API server that is away.
func TestAnInspectionThatCannotAskEnds(t *testing.T) {
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://127.0.0.1:1"})
	require.NoError(t, err)
	out := newLineWatcher()
	ask, end := inspect(t.Context(), client, "idlecount", slog.New(slog.NewTextHandler(out, nil)))
	for range 10 {
		ask(&config.Config{}) // never blocks
	}
	out.await(t, "can't check what would keep pods from starting")
	end()
}

// lineWatcher is a log that a test waits on.
type lineWatcher struct{ lines chan string }

func newLineWatcher() *lineWatcher { return &lineWatcher{make(chan string, 100)} }

func (w *lineWatcher) Write(p []byte) (int, error) {
	w.lines <- string(p)
	return len(p), nil
}

func (w *lineWatcher) await(t *testing.T, text string) {
	t.Helper()
	for {
		select {
		case line := <-w.lines:
			if strings.Contains(line, text) {
				return
			}
		case <-t.Context().Done():
			t.Fatalf("%q is not logged", text)
		}
	}
}
