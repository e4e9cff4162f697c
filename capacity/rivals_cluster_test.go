package capacity_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"idlecount.dev/idlecount/capacity/status"
	"idlecount.dev/idlecount/e2e/cluster/clustertest"
	"idlecount.dev/idlecount/factory"
)

// TestACapacityThatAnotherManagerHasIsLeftToIt: two configurations with one runner are a mistake, and it must not matter who
// has made it last. Where the one that has the capacity ends, the other one goes on.
func TestACapacityThatAnotherManagerHasIsLeftToIt(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	g.lease(g.namespace, "first", "somebody")
	g.lease(g.namespace, "second", "somebody")
	first := g.keepBy(g.namespace, "first", g.config(`idle_strategy = "pause"`, "idle_count = 2"))
	await(t, "two are there", func() bool { return g.replicas() == 2 && g.status().Hold == 2 })
	second := g.keepBy(g.namespace, "second", g.config(`idle_strategy = "pause"`, "idle_count = 4"))
	await(t, "the metric says so", func() bool { return second.metric("idlecount_capacity_trouble", "reason", "Taken") == 1 })
	require.Len(t, second.Unkept(), 1)
	require.Contains(t, second.Unkept()[0], "capacity "+g.namespace+"/"+g.token+"-pause isn't kept: the managers of lease "+g.namespace+"/first have the capacity")
	require.Zero(t, second.metric("idlecount_capacity_wanted"))
	second.until("it has looked again", func() bool { return second.clock.Now().After(monday.Add(time.Minute)) })
	require.Zero(t, second.metric("idlecount_capacity_writes_total"), "it has touched nothing")
	require.Equal(t, 1, strings.Count(second.log.String(), "is left to another manager"), "that is said once")
	require.Empty(t, first.Unkept())

	first.end()
	g.release(g.namespace, "first")
	second.until("the second one goes on", func() bool { return g.replicas() == 4 && g.status().Lease == g.namespace+"/second" })
	require.Contains(t, second.log.String(), "taken over from another manager")
	await(t, "and is well", func() bool {
		return len(second.Unkept()) == 0 && second.metric("idlecount_capacity_trouble") == 0 && second.metric("idlecount_capacity_wanted") == 4
	})
}

// TestACapacityThatWasTakenComesBack: a manager that ran once by mistake, and whose lease can't be read, must not leave it
// as it was then for ever.
func TestACapacityThatWasTakenComesBack(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	other := clustertest.Namespace(t)
	g.lease(other, "managers", "somebody")
	first := g.asAccount().keep(g.config(`idle_strategy = "pause"`, "idle_count = 2"))
	await(t, "two are there", func() bool { return g.replicas() == 2 && first.metric("idlecount_capacity_wanted") == 2 })
	second := g.keepBy(other, "managers", g.config(`idle_strategy = "pause"`, "idle_count = 4"))
	second.until("the second one takes it: nobody holds the lease of the first", func() bool { return g.replicas() == 4 && g.status().Hold == 4 })
	await(t, "the first one says that it has lost it", func() bool {
		return first.metric("idlecount_capacity_trouble", "reason", "Taken") == 1 && strings.Contains(strings.Join(first.Unkept(), ""), other+"/managers")
	})
	second.end()
	first.until("while nothing is due it is left", func() bool { return first.clock.Now().After(monday.Add(10 * time.Minute)) })
	require.Equal(t, 4, g.replicas(), "it doesn't fight")

	_, err := g.client.AppsV1().Deployments(g.namespace).Patch(t.Context(), g.deployment().Name, types.MergePatchType,
		[]byte(`{"spec":{"replicas":0}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	first.until("the first one has it again", func() bool { return g.replicas() == 2 && g.status().Lease == g.namespace+"/managers" })
	await(t, "and is well", func() bool { return len(first.Unkept()) == 0 && first.metric("idlecount_capacity_trouble") == 0 })
}

// TestWhatCantBeKeptForWantOfRightsIsNamed, until the rights are there.
func TestWhatCantBeKeptForWantOfRightsIsNamed(t *testing.T) {
	for lack, says := range map[string]string{
		"list watch deployments": "the manager may not see deployments in namespace ",
		"create configmaps":      "create the anchor, ConfigMap ",
		"create deployments":     "hold capacity by Deployment ",
	} {
		t.Run(lack, func(t *testing.T) {
			t.Parallel()
			g := newGround(t)
			account := g.asAccount(lack)
			k := account.keep(g.config(`idle_strategy = "pause"`, "idle_count = 1"))
			await(t, "it is named", func() bool {
				return strings.Contains(strings.Join(k.Unkept(), "\n"), "capacity "+g.namespace+"/"+g.token+"-pause isn't kept: "+says)
			})
			if lack == "create deployments" {
				await(t, "the status says so too", func() bool { s := g.status(); return s.Trouble != nil && s.Trouble.Reason == status.Access })
			}
			roles := g.client.RbacV1().Roles(g.namespace)
			role, err := roles.Get(t.Context(), "keeper-"+g.token, metav1.GetOptions{})
			require.NoError(t, err)
			words := strings.Fields(lack)
			last := len(words) - 1
			role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{"", "apps"}, Resources: words[last:], Verbs: words[:last]})
			_, err = roles.Update(t.Context(), role, metav1.UpdateOptions{})
			require.NoError(t, err)
			k.until("all is well", func() bool { return len(k.Unkept()) == 0 && len(g.pods(factory.LabelCapacity)) == 1 })
		})
	}
}
