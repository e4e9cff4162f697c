package capacity_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/yaml"

	"idlecount.dev/idlecount/capacity/status"
	"idlecount.dev/idlecount/factory"
)

// bufferCRD is the cluster autoscaler's CapacityBuffer in two versions, with what its schema demands of us and of the autoscaler.
const bufferCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: capacitybuffers.autoscaling.x-k8s.io}
spec:
  group: autoscaling.x-k8s.io
  scope: Namespaced
  names: {kind: CapacityBuffer, listKind: CapacityBufferList, plural: capacitybuffers, singular: capacitybuffer, shortNames: [cb]}
  versions:
  - {name: v1alpha1, served: true, storage: false, deprecated: true, subresources: {status: {}}, schema: &schema {openAPIV3Schema: {
      type: object, required: [spec], properties: {
        spec: {
          type: object,
          x-kubernetes-validations: [
            {rule: "!has(self.podTemplateRef) || has(self.replicas) || has(self.limits)", message: a template without a number},
            {rule: "!(has(self.podTemplateRef) && has(self.scalableRef))", message: two templates}],
          properties: {
            provisioningStrategy: {type: string, default: buffer.x-k8s.io/active-capacity},
            podTemplateRef: &ref {type: object, required: [name], properties: {name: {type: string, minLength: 1}}},
            scalableRef: {type: object, required: [kind, name], properties: {
              apiGroup: {type: string}, kind: {type: string, minLength: 1}, name: {type: string, minLength: 1}}},
            replicas: {type: integer, format: int32, minimum: 0},
            percentage: {type: integer, format: int32, minimum: 0},
            limits: {type: object, additionalProperties: {x-kubernetes-int-or-string: true, anyOf: [{type: integer}, {type: string}]}}}},
        status: {type: object, properties: {
          podTemplateRef: *ref, podTemplateGeneration: {type: integer, format: int64},
          replicas: {type: integer, format: int32}, provisioningStrategy: {type: string},
          conditions: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [type], items: {
            type: object, required: [lastTransitionTime, message, reason, status, type], properties: {
              type: {type: string, maxLength: 316}, status: {type: string, enum: ["True", "False", Unknown]},
              reason: {type: string, minLength: 1, maxLength: 1024, pattern: "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"},
              message: {type: string, maxLength: 32768}, observedGeneration: {type: integer, format: int64, minimum: 0},
              lastTransitionTime: {type: string, format: date-time}}}}}}}}}}
  - {name: v1beta1, served: true, storage: true, subresources: {status: {}}, schema: *schema}
`

// requestCRD is another kind of the cluster autoscaler, in the same group and in later versions.
const requestCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: provisioningrequests.autoscaling.x-k8s.io}
spec:
  group: autoscaling.x-k8s.io
  scope: Namespaced
  names: {kind: ProvisioningRequest, listKind: ProvisioningRequestList, plural: provisioningrequests, singular: provisioningrequest}
  versions:
  - {name: v1, served: true, storage: true, schema: &any {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
  - {name: v1beta1, served: true, storage: false, schema: *any}
`

// define makes a CRD until the test ends. It is there for the whole cluster, so such tests aren't parallel.
func (g *ground) define(crd string) {
	g.t.Helper()
	const all = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	var object struct{ Metadata struct{ Name string } }
	require.NoError(g.t, yaml.Unmarshal([]byte(crd), &object))
	body, err := yaml.YAMLToJSON([]byte(crd))
	require.NoError(g.t, err)
	client, ctx, one := g.client.Discovery().RESTClient(), context.WithoutCancel(g.t.Context()), all+"/"+object.Metadata.Name
	gone := func() bool {
		if apierrors.IsNotFound(client.Delete().AbsPath(one).Do(ctx).Error()) {
			return true
		}
		// The API server that failed to list what there is of it tries again after minutes, or when the CRD changes.
		nudge := []byte(`{"metadata":{"annotations":{"idlecount.dev/nudge":"` + rand.String(8) + `"}}}`)
		return apierrors.IsNotFound(client.Patch(types.MergePatchType).AbsPath(one).Body(nudge).Do(ctx).Error())
	}
	await(g.t, "what a test has left is gone", gone)
	require.NoError(g.t, client.Post().AbsPath(all).SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error())
	g.t.Cleanup(func() { await(g.t, object.Metadata.Name+" is gone", gone) })
}

// autoscaler says something of the ground's buffer.
func (g *ground) autoscaler(status string) {
	g.t.Helper()
	err := g.client.Discovery().RESTClient().Patch(types.MergePatchType).
		AbsPath("/apis/autoscaling.x-k8s.io/v1beta1/namespaces/"+g.namespace+"/capacitybuffers/"+g.token+"-pause", "status").
		Body([]byte(`{"status":` + status + `}`)).Do(g.t.Context()).Error()
	require.NoError(g.t, err)
}

// TestABufferIsKeptWhereTheClusterHasThem, and where it hasn't, status says so. It is not parallel: the API is there for the
// whole cluster.
func TestABufferIsKeptWhereTheClusterHasThem(t *testing.T) {
	g := newGround(t)
	g.define(requestCRD)
	k := g.keep(g.config(`idle_strategy = "buffer"`, "idle_count = 2", `idle_time = "0s"`))
	await(t, "the missing API is named", func() bool {
		s := g.status()
		return s.Trouble != nil && s.Trouble.Reason == status.Buffer
	})
	require.Contains(t, g.status().Trouble.Message, "install the CapacityBuffer CRD")
	require.Nil(t, g.deployment())

	g.define(bufferCRD)
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

	g.limitRange(corev1.LimitRangeItem{DefaultRequest: corev1.ResourceList{"cpu": resource.MustParse("100m")}})
	k.until("its template is as large as a job under a LimitRange", func() bool {
		template, err := g.client.CoreV1().PodTemplates(g.namespace).Get(t.Context(), name[1:], metav1.GetOptions{})
		return err == nil && template.Template.Spec.Containers[0].Resources.Requests.Cpu().String() == "1100m"
	})

	const said = `"reason": "Said", "message": "so it is", "lastTransitionTime": "2026-03-02T12:00:00Z"`
	g.autoscaler(`{"replicas": 2, "conditions": [{"type": "ReadyForProvisioning", "status": "True", ` + said + `}, {"type": "Provisioning", "status": "True", ` + said + `}]}`)
	k.until("what the autoscaler provides for is held", func() bool { return g.status().Held == 2 && k.metric("idlecount_capacity_pods", "state", "held") == 2 })
	g.autoscaler(`{"replicas": 1, "conditions": [{"type": "Provisioning", "status": "True", ` + said + `}, {"type": "LimitedByQuotas", "status": "True", ` + said + `}]}`)
	k.until("its words are said", func() bool {
		s := g.status()
		return s.Held == 1 && s.Trouble != nil && s.Trouble.Reason == status.Quota && strings.Contains(s.Trouble.Message, "LimitedByQuotas=True, so it is")
	})
	require.InDelta(t, 1, k.metric("idlecount_capacity_pods", "state", "pending"), 0)
	g.autoscaler(`{"conditions": null}`)
	now = k.clock.Now()

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
