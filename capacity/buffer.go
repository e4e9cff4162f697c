package capacity

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"idlecount.dev/idlecount/capacity/plan"
	"idlecount.dev/idlecount/capacity/status"
	"idlecount.dev/idlecount/factory"
)

// bufferAPI is whether, and in which version, the cluster has CapacityBuffers. The zero value is that of one that wasn't asked.
type bufferAPI struct {
	asked   time.Time
	version string // "" = it has none
}

// unfit says why nothing can be held by a buffer, nil where it can.
func (b bufferAPI) unfit() *status.Trouble {
	if b.asked.IsZero() || b.version != "" {
		return nil
	}
	return &status.Trouble{Reason: status.Buffer, Message: `the cluster doesn't serve ` + factory.CapacityBufferGroup +
		`, so nothing keeps a buffer: install the CapacityBuffer CRD and a cluster autoscaler that knows it, or set idle_strategy = "pause"`}
}

// readBuffers finds out which version of the API the cluster prefers, unless that is known.
func (t *term) readBuffers(ctx context.Context) error {
	if now := t.clock.Now(); !t.buffers.asked.IsZero() && now.Sub(t.buffers.asked) < classesHold {
		return nil
	}
	found, err := findBuffers(ctx, t.client, t.clock.Now())
	if err == nil {
		t.buffers = found
	}
	return err
}

// findBuffers asks for the version that the cluster prefers now.
func findBuffers(ctx context.Context, client kubernetes.Interface, now time.Time) (bufferAPI, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	raw, err := client.Discovery().RESTClient().Get().AbsPath("/apis/"+factory.CapacityBufferGroup).
		SetHeader("Accept", "application/json").Do(ctx).Raw()
	if apierrors.IsNotFound(err) {
		return bufferAPI{asked: now}, nil
	}
	if err != nil {
		return bufferAPI{}, fmt.Errorf("find out whether the cluster has CapacityBuffers: %w", err)
	}
	var group metav1.APIGroup
	if err := json.Unmarshal(raw, &group); err != nil {
		return bufferAPI{}, fmt.Errorf("find out which CapacityBuffers the cluster has: %w", err)
	}
	return bufferAPI{asked: now, version: group.PreferredVersion.Version}, nil
}

// keepBuffer has the cluster autoscaler hold a capacity: a PodTemplate of a job, and a CapacityBuffer of so many.
func (t *term) keepBuffer(ctx context.Context, p *part, r plan.Result) error {
	version := t.buffers.version
	if version == "" {
		return nil // and status says so, where any is wanted
	}
	if d := p.deployment; d != nil && d.DeletionTimestamp == nil {
		if err := t.deleteDeployment(ctx, d); err != nil {
			return err
		}
	}
	want := fmt.Sprint(p.hash, " ", r.Hold, " ", version, " ", p.anchor.UID)
	if p.memory.buffer == want && t.clock.Since(p.memory.bufferAt) < lookAnyway {
		return nil
	}
	if err := t.writeTemplate(ctx, p); err != nil {
		return err
	}
	body := factory.CapacityBuffer(p.runner, p.capacity, version, r.Hold, owner(p.anchor))
	if err := t.writeBuffer(ctx, p, version, body); err != nil {
		return err
	}
	p.memory.buffer, p.memory.bufferAt = want, t.clock.Now()
	return nil
}

func (t *term) writeTemplate(ctx context.Context, p *part) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	templates := t.client.CoreV1().PodTemplates(p.key.namespace)
	fresh := factory.BufferTemplate(p.runner, p.capacity, owner(p.anchor))
	there, err := templates.Get(ctx, p.key.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = templates.Create(ctx, fresh, metav1.CreateOptions{})
		t.metrics.wrote("create podtemplate", err)
	case err == nil && there.Annotations[factory.AnnotationTemplate] != p.hash:
		fresh.ResourceVersion = there.ResourceVersion
		_, err = templates.Update(ctx, fresh, metav1.UpdateOptions{})
		t.metrics.wrote("update podtemplate", err)
	}
	if err != nil {
		return fmt.Errorf("write PodTemplate %s/%s: %w", p.key.namespace, p.key.name, err)
	}
	return nil
}

// buffer is a request to the API of CapacityBuffers.
func (t *term) bufferRequest(ctx context.Context, verb, version string, k key, name string, body any) ([]byte, error) {
	path := []string{"/apis", factory.CapacityBufferGroup, version, "namespaces", k.namespace, "capacitybuffers"}
	if name != "" {
		path = append(path, name)
	}
	request := t.client.Discovery().RESTClient().Verb(verb).AbsPath(path...).SetHeader("Accept", "application/json")
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		request = request.SetHeader("Content-Type", "application/json").Body(encoded)
	}
	return request.Do(ctx).Raw()
}

func (t *term) writeBuffer(ctx context.Context, p *part, version string, body map[string]any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	raw, err := t.bufferRequest(ctx, http.MethodGet, version, p.key, p.key.name, nil)
	if apierrors.IsNotFound(err) {
		_, err = t.bufferRequest(ctx, http.MethodPost, version, p.key, "", body)
		t.metrics.wrote("create capacitybuffer", err)
	} else if err == nil {
		err = t.updateBuffer(ctx, p, version, raw, body)
	}
	if err != nil {
		return fmt.Errorf("write CapacityBuffer %s/%s: %w", p.key.namespace, p.key.name, err)
	}
	return nil
}

// updateBuffer writes the spec where it isn't as it should be. What the API server has filled in is left alone.
func (t *term) updateBuffer(ctx context.Context, p *part, version string, raw []byte, body map[string]any) error {
	var there map[string]any
	if err := json.Unmarshal(raw, &there); err != nil {
		return err
	}
	spec, _ := there["spec"].(map[string]any)
	wanted, _ := body["spec"].(map[string]any)
	same := spec != nil
	for field, value := range wanted {
		a, _ := json.Marshal(spec[field]) //nolint:errchkjson // it was JSON a moment ago
		b, _ := json.Marshal(value)       //nolint:errchkjson // of texts and numbers
		same = same && string(a) == string(b)
	}
	if same {
		return nil
	}
	if spec == nil {
		spec = map[string]any{}
	}
	maps.Copy(spec, wanted)
	there["spec"] = spec
	_, err := t.bufferRequest(ctx, http.MethodPut, version, p.key, p.key.name, there)
	t.metrics.wrote("update capacitybuffer", err)
	return err
}

// dropBuffer takes away the buffer of a capacity that is held by pause pods now: what the status says of it is how it was.
func (t *term) dropBuffer(ctx context.Context, p *part) error {
	if p.before.Strategy == "" || p.before.Strategy == strategy(p.runner) {
		return nil
	}
	if err := t.readBuffers(ctx); err != nil {
		return err
	}
	version := t.buffers.version
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if version != "" {
		_, err := t.bufferRequest(ctx, http.MethodDelete, version, p.key, p.key.name, nil)
		t.metrics.wrote("delete capacitybuffer", err)
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete CapacityBuffer %s/%s: %w", p.key.namespace, p.key.name, err)
		}
	}
	err := t.client.CoreV1().PodTemplates(p.key.namespace).Delete(ctx, p.key.name, metav1.DeleteOptions{})
	t.metrics.wrote("delete podtemplate", err)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete PodTemplate %s/%s: %w", p.key.namespace, p.key.name, err)
	}
	p.memory.buffer = ""
	return nil
}
