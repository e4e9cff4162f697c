package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"idlecount.dev/idlecount/e2e/runner"
	"idlecount.dev/idlecount/executor-plugin/diagnosis"
	"idlecount.dev/idlecount/factory"
)

func TestWhenAJobLooksElsewhere(t *testing.T) {
	starts := diagnosis.Start{Findings: []diagnosis.Finding{{Topic: "node", Message: "the pod starts on node n"}}}
	stuck := diagnosis.Start{Findings: []diagnosis.Finding{{Topic: "node", Message: "waiting for a node", Stuck: true}}}
	require.False(t, looksElsewhere(time.Second, starts))
	require.True(t, looksElsewhere(loyalty, starts))
	require.False(t, looksElsewhere(0, stuck), "most find a node in a moment")
	require.True(t, looksElsewhere(scoutPause, stuck))
	require.False(t, looksElsewhere(time.Hour, diagnosis.Start{Ready: true}))
}

// A job took the only pod there was, which finds no node; a minute later there is another one.
func TestAPodThatIsReadyFirstIsTakenInsteadOfOneThatStarts(t *testing.T) {
	g := newGround(t)
	pod := factory.IdlePod(g.settings, g.shape(t), "stuck", 30*time.Minute, factory.Owner{Name: g.anchor.Name, UID: g.anchor.UID})
	pod.Spec.NodeSelector = map[string]string{"no": "node"}
	_, err := g.pods().Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
	live := &trigger{word: "taking pod " + g.namespace + "/stuck, which is still starting", then: func() {
		quick := factory.IdlePod(g.settings, g.shape(t), "quick", 30*time.Minute, factory.Owner{Name: g.anchor.Name, UID: g.anchor.UID})
		_, err := g.pods().Create(context.Background(), quick, metav1.CreateOptions{})
		assert.NoError(t, err)
	}}
	result := g.runner.Run(t.Context(), script("echo pod=$HOSTNAME="), live)
	log := string(result.Log)
	require.Equal(t, runner.Success, result.Status, log)
	require.Contains(t, log, "pod "+g.namespace+"/quick was ready first; taking that instead")
	require.Contains(t, log, "\npod=quick=")
	require.Equal(t, 1, strings.Count(log, "claimed warm pod"))
	_, err = g.pods().Get(t.Context(), "stuck", metav1.GetOptions{})
	require.Error(t, err, "the first pod is dropped")
}
