package capacity_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"idlecount.dev/idlecount/capacity/status"
	"idlecount.dev/idlecount/factory"
)

// bufferCRD is as much of the cluster autoscaler's CapacityBuffer as a test needs: its group, names and scope, and the
// fields that are written.
const bufferCRD = `{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
"metadata": {"name": "capacitybuffers.autoscaling.x-k8s.io", "annotations": {"api-approved.kubernetes.io": "unapproved, of a test"}},
"spec": {"group": "autoscaling.x-k8s.io", "scope": "Namespaced",
"names": {"kind": "CapacityBuffer", "plural": "capacitybuffers", "singular": "capacitybuffer", "listKind": "CapacityBufferList"},
"versions": [{"name": "v1beta1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "properties": {
"spec": {"type": "object", "properties": {"provisioningStrategy": {"type": "string"}, "replicas": {"type": "integer"},
"podTemplateRef": {"type": "object", "properties": {"name": {"type": "string"}}},
"limits": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}}}]}}`

// TestABufferIsKeptWhereTheClusterHasThem, and where it hasn't, status says so. It is not parallel: the API is there for the
// whole cluster.
func TestABufferIsKeptWhereTheClusterHasThem(t *testing.T) {
	g := newGround(t)
	crds := func(verb string) error {
		request := g.client.Discovery().RESTClient().Verb(verb).SetHeader("Content-Type", "application/json")
		path := "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
		if verb == "POST" {
			return request.AbsPath(path).Body([]byte(bufferCRD)).Do(context.WithoutCancel(t.Context())).Error()
		}
		return request.AbsPath(path + "/capacitybuffers.autoscaling.x-k8s.io").Do(context.WithoutCancel(t.Context())).Error()
	}
	if err := crds("DELETE"); err == nil {
		await(t, "what a test has left is gone", func() bool { return apierrors.IsNotFound(crds("GET")) })
	}
	k := g.keep(g.config(`idle_strategy = "buffer"`, "idle_count = 2", `idle_time = "0s"`))
	await(t, "the missing API is named", func() bool {
		s := g.status()
		return s.Trouble != nil && s.Trouble.Reason == status.Buffer
	})
	require.Contains(t, g.status().Trouble.Message, "install the CapacityBuffer CRD")
	require.Nil(t, g.deployment())

	require.NoError(t, crds("POST"))
	t.Cleanup(func() {
		if err := crds("DELETE"); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	name := "/" + g.token + "-pause"
	buffer := func() (spec struct {
		ProvisioningStrategy string
		Replicas             int
		PodTemplateRef       struct{ Name string }
		Limits               map[string]any
	}, err error) {
		raw, err := g.client.Discovery().RESTClient().Get().
			AbsPath("/apis/autoscaling.x-k8s.io/v1beta1/namespaces/" + g.namespace + "/capacitybuffers" + name).Do(t.Context()).Raw()
		if err != nil {
			return spec, err
		}
		var object struct{ Spec json.RawMessage }
		require.NoError(t, json.Unmarshal(raw, &object))
		return spec, json.Unmarshal(object.Spec, &spec)
	}
	// What is asked of the cluster holds for a minute of the keeper's clock.
	now := monday
	holds := func(replicas int) func() bool {
		return func() bool {
			now = now.Add(2 * time.Minute)
			k.at(now)
			spec, err := buffer()
			return err == nil && spec.Replicas == replicas && spec.PodTemplateRef.Name == name[1:] && spec.ProvisioningStrategy != ""
		}
	}
	await(t, "the buffer is there", holds(2))
	template, err := g.client.CoreV1().PodTemplates(g.namespace).Get(t.Context(), name[1:], metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "1", template.Template.Spec.Containers[0].Resources.Requests.Cpu().String())
	await(t, "nothing is in the way any more", func() bool { return g.status().Trouble == nil })

	k.reload(g.config(`idle_strategy = "buffer"`, "idle_count = 4", `idle_time = "0s"`))
	await(t, "it follows the policy", holds(4))
	k.reload(g.config(`idle_strategy = "buffer"`, "idle_count = 1", `idle_time = "10m"`))
	await(t, "surplus cools down", func() bool { return g.status().Surplus != nil && g.status().Hold == 4 })
	now = now.Add(11 * time.Minute)
	await(t, "and goes", holds(1))
	k.reload(g.config(`idle_strategy = "pause"`, "idle_count = 1", `idle_time = "0s"`))
	await(t, "pause pods take over", func() bool {
		_, err := buffer()
		_, terr := g.client.CoreV1().PodTemplates(g.namespace).Get(t.Context(), name[1:], metav1.GetOptions{})
		return apierrors.IsNotFound(err) && apierrors.IsNotFound(terr) && len(g.pods(factory.LabelCapacity)) == 1
	})
}
