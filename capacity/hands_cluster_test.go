package capacity_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"idlecount.dev/idlecount/factory"
)

// scale sets how many pods a Deployment asks for, by hand.
func (g *ground) scale(name string, n int) {
	g.t.Helper()
	_, err := g.client.AppsV1().Deployments(g.namespace).Patch(g.t.Context(), name, types.MergePatchType,
		[]byte(fmt.Sprintf(`{"spec":{"replicas":%d}}`, n)), metav1.PatchOptions{})
	require.NoError(g.t, err)
}

// TestWhatIsRefusedIsntTriedWithEachChange, and keeps no other capacity waiting.
func TestWhatIsRefusedIsntTriedWithEachChange(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	foreign := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: g.token + "-pause"},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(0)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a:1"}}},
			},
		},
	}
	_, err := g.client.AppsV1().Deployments(g.namespace).Create(t.Context(), foreign, metav1.CreateOptions{})
	require.NoError(t, err)
	k := g.keep(g.config(`idle_strategy = "pause"`, "idle_count = 2", `idle_time = "0s"`, `
    [[runners.kubernetes.idle_image]]
      image = "other:1"
      cpu_request = "2"`))
	refused := func() int {
		return int(k.metric("idlecount_capacity_writes_total", "operation", "create deployment", "result", "error"))
	}
	await(t, "it is tried some times", func() bool { return refused() >= 4 })
	await(t, "the other one is there", func() bool { return g.replicas() == 2 })
	before, name := refused(), g.deployment().Name
	for range 12 {
		g.scale(name, 5)
		await(t, "the other one is kept", func() bool { return g.replicas() == 2 })
	}
	require.Less(t, refused(), before+8, "with each change")

	require.NoError(t, g.client.AppsV1().Deployments(g.namespace).Delete(t.Context(), foreign.Name, metav1.DeleteOptions{}))
	k.at(k.clock.Now()) // as a reload
	await(t, "it is made at once then", func() bool {
		d, err := g.client.AppsV1().Deployments(g.namespace).Get(t.Context(), foreign.Name, metav1.GetOptions{})
		return err == nil && d.Labels[factory.LabelCapacity] != ""
	})
}

// TestATemplateThatSomebodyEditsIsRestored, also where no manager ran meanwhile; and nothing is written where nobody did.
func TestATemplateThatSomebodyEditsIsRestored(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	cfg := g.config(`idle_strategy = "pause"`, "idle_count = 2", `idle_time = "0s"`)
	k := g.keep(cfg)
	await(t, "two are there", func() bool { return len(g.pods(factory.LabelCapacity)) == 2 })
	edit := func() {
		_, err := g.client.AppsV1().Deployments(g.namespace).Patch(t.Context(), g.deployment().Name, types.StrategicMergePatchType,
			[]byte(`{"spec":{"template":{"spec":{"containers":[{"name":"pause","resources":{"requests":{"cpu":"7"}}}]}}}}`), metav1.PatchOptions{})
		require.NoError(t, err)
	}
	restored := func() bool {
		return g.deployment().Spec.Template.Spec.Containers[0].Resources.Requests.Cpu().String() == "1"
	}
	edit()
	await(t, "it is restored", restored)
	k.end()
	edit()
	k = g.keep(cfg)
	await(t, "after a pause too", restored)
	writes := func() float64 {
		return k.metric("idlecount_capacity_writes_total", "operation", "update deployment") + k.metric("idlecount_capacity_writes_total", "operation", "create deployment")
	}
	await(t, "that is one write", func() bool { return writes() == 1 })
	for range 3 {
		g.scale(g.deployment().Name, 5)
		await(t, "two again", func() bool { return g.replicas() == 2 })
	}
	require.InDelta(t, 1, writes(), 0, "nobody has edited it since")
}

// TestAnAnchorThatLeftItsDeploymentBehindHasItAgain: kubectl delete --cascade=orphan.
func TestAnAnchorThatLeftItsDeploymentBehindHasItAgain(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	g.keep(g.config(`idle_strategy = "pause"`, "idle_count = 1"))
	await(t, "it is there", func() bool { return len(g.pods(factory.LabelCapacity)) == 1 })
	before := g.deployment()
	anchors := g.client.CoreV1().ConfigMaps(g.namespace)
	require.NoError(t, anchors.Delete(t.Context(), before.Name, metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationOrphan)}))
	await(t, "the new anchor owns it", func() bool {
		anchor, err := anchors.Get(t.Context(), before.Name, metav1.GetOptions{})
		d := g.deployment()
		return err == nil && d != nil && anchor.UID != before.OwnerReferences[0].UID &&
			len(d.OwnerReferences) == 1 && d.OwnerReferences[0].UID == anchor.UID
	})
	require.Equal(t, before.UID, g.deployment().UID)
}

// TestANamespaceThatIsntThereIsNamed, before it comes and after it has gone.
func TestANamespaceThatIsntThereIsNamed(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	there := *g
	there.namespace = "idlecount-test-" + g.token
	k := g.keepBy(g.namespace, "managers", there.config(`idle_strategy = "pause"`, "idle_count = 1"))
	unkept := func(words string) func() bool {
		return func() bool { return strings.Contains(strings.Join(k.Unkept(), "\n"), words) }
	}
	missing := fmt.Sprintf("namespaces %q not found", there.namespace)
	await(t, "it is missing", unkept(missing))
	namespaces := g.client.CoreV1().Namespaces()
	_, err := namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: there.namespace}}, metav1.CreateOptions{})
	require.NoError(t, err)
	k.until("all is well", func() bool { return len(k.Unkept()) == 0 && len(there.pods(factory.LabelCapacity)) == 1 })
	require.NoError(t, namespaces.Delete(t.Context(), there.namespace, metav1.DeleteOptions{}))
	k.until("it is missing again", unkept(missing))
}
