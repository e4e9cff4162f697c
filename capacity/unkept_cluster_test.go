package capacity_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"idlecount.dev/idlecount/capacity/status"
	"idlecount.dev/idlecount/config"
)

// TestARunnerWhoseJobsCantBeMeasuredLosesItsRoomAlone: loading refuses such a file, so this is what is left where it doesn't.
func TestARunnerWhoseJobsCantBeMeasuredLosesItsRoomAlone(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	other := "o" + rand.String(8)
	both := func(patch string) *config.Config {
		cfg := g.config(`idle_strategy = "pause"`, "idle_count = 2")
		second := cfg.Runners[0]
		second.Name, second.Token = "other", "glrt-"+other
		r := &cfg.Runners[0]
		r.FeatureFlags.AdvancedPodSpec = new(true)
		r.Kubernetes.PodSpec = []config.PodSpec{{Patch: patch}}
		cfg.Runners = append(cfg.Runners, second)
		return cfg
	}
	deployment := func(token string) *appsv1.Deployment {
		d, err := g.client.AppsV1().Deployments(g.namespace).Get(t.Context(), token[:9]+"-pause", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Replicas: new(int32(-1))}}
		}
		require.NoError(t, err)
		return d
	}
	trouble := func() *status.Trouble {
		anchor, err := g.client.CoreV1().ConfigMaps(g.namespace).Get(t.Context(), g.token[:9]+"-pause", metav1.GetOptions{})
		require.NoError(t, err)
		s, err := status.Of(anchor)
		require.NoError(t, err)
		return s.Trouble
	}
	k := g.keep(both("{}"))
	await(t, "room for both", func() bool {
		return *deployment(g.token).Spec.Replicas == 2 && *deployment(other).Spec.Replicas == 2
	})
	theirs := deployment(other)
	k.reload(both("nodeSelector: 5"))
	await(t, "the one has none, and says why", func() bool {
		is := trouble()
		return *deployment(g.token).Spec.Replicas == 0 && is != nil && is.Reason == status.Config &&
			strings.Contains(is.Message, "runners[0].kubernetes.pod_spec[0].patch: makes no pod")
	})
	require.Equal(t, theirs.Generation, deployment(other).Generation, "the other's is left alone")
	k.reload(both("{}"))
	await(t, "mended", func() bool { return *deployment(g.token).Spec.Replicas == 2 && trouble() == nil })
}

// TestACapacityInAMissingNamespaceIsNamedAndWaitedFor, as pools are: there is no anchor that could say so.
func TestACapacityInAMissingNamespaceIsNamedAndWaitedFor(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	cfg := g.config(`idle_strategy = "pause"`, "idle_count = 1")
	name := g.namespace + "-late"
	cfg.Runners[0].Kubernetes.Namespace = name
	k := g.keep(cfg)
	await(t, "/readyz and the metrics say so", func() bool {
		says := func(line string) bool {
			return strings.HasPrefix(line, "capacity "+name+"/") && strings.Contains(line, `namespaces "`+name+`" not found`)
		}
		return slices.ContainsFunc(k.Unkept(), says) && k.metric("idlecount_capacity_trouble", "reason", "API") == 1
	})
	_, err := g.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		k.end()
		_ = g.client.CoreV1().Namespaces().Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{})
	})
	k.until("it is kept, and nothing is said any more", func() bool {
		list, err := g.client.AppsV1().Deployments(name).List(t.Context(), metav1.ListOptions{})
		return err == nil && len(list.Items) == 1 && len(k.Unkept()) == 0 && k.metric("idlecount_capacity_trouble") == 0
	})
}
