package capacity

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

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
	problem, remedy := NoBuffers()
	return &status.Trouble{Reason: status.Buffer, Message: problem + ": " + remedy}
}

// NoBuffers is what is wrong where a cluster has no CapacityBuffers, and what to do.
func NoBuffers() (problem, remedy string) {
	return fmt.Sprintf("the cluster doesn't serve the CapacityBuffers of %s in a version that is known (%s), so nothing keeps a buffer",
			factory.CapacityBufferGroup, strings.Join(bufferVersions(), ", ")),
		"install the CapacityBuffer CRD and a cluster autoscaler that knows it, or set idle_strategy = \"pause\""
}

// BufferVersion is the version in which the cluster has CapacityBuffers, "" where it has none that is known.
func BufferVersion(ctx context.Context, client kubernetes.Interface) (string, error) {
	found, err := findBuffers(ctx, client, time.Time{})
	return found.version, err
}

// bufferVersions are those of the API that we write, the best one first. A later one may have another meaning.
func bufferVersions() []string { return []string{"v1beta1", "v1alpha1"} }

// readBuffers finds out in which version the cluster has CapacityBuffers, unless that is known.
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

// findBuffers asks for each version whether the cluster has CapacityBuffers in it. Which version of the group it prefers says
// nothing of that: other kinds of the cluster autoscaler are in it.
func findBuffers(ctx context.Context, client kubernetes.Interface, now time.Time) (bufferAPI, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	for _, version := range bufferVersions() {
		raw, err := client.Discovery().RESTClient().Get().AbsPath("/apis/"+factory.CapacityBufferGroup+"/"+version).
			SetHeader("Accept", "application/json").Do(ctx).Raw()
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return bufferAPI{}, fmt.Errorf("find out whether the cluster has CapacityBuffers: %w", err)
		}
		var list metav1.APIResourceList
		if err := json.Unmarshal(raw, &list); err != nil {
			return bufferAPI{}, fmt.Errorf("find out which CapacityBuffers the cluster has: %w", err)
		}
		if slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == bufferResource && r.Namespaced }) {
			return bufferAPI{asked: now, version: version}, nil
		}
	}
	return bufferAPI{asked: now}, nil
}

// bufferResource is how the API calls CapacityBuffers.
const bufferResource = "capacitybuffers"

// keepBuffer has the cluster autoscaler hold a capacity: a PodTemplate of a job, and a CapacityBuffer of so many. What the
// autoscaler says of it is in the decision that it returns.
func (t *term) keepBuffer(ctx context.Context, p *part, d decision) (decision, error) {
	if deployment := p.deployment; deployment != nil && deployment.DeletionTimestamp == nil {
		if err := t.deleteDeployment(ctx, deployment); err != nil {
			return d, err
		}
	}
	version := t.buffers.version
	if version == "" {
		return d, nil // and status says so, where any is wanted
	}
	m := &p.memory.buffer
	if want := fmt.Sprint(p.hash, " ", d.Hold, " ", version, " ", p.anchor.UID); m.want != want || !p.now.Before(m.at.Add(bufferEvery)) {
		if err := t.writeTemplate(ctx, p); err != nil {
			return d, err
		}
		there, err := t.writeBuffer(ctx, p, version, factory.CapacityBuffer(p.runner, p.capacity, version, d.Hold, owner(p.anchor)))
		if err != nil {
			return d, err
		}
		*m = buffered{want: want, at: p.now, answer: there.answer(d.Hold, p.now)}
	}
	p.held, p.pending, p.again = m.held, d.Hold-m.held, m.at.Add(bufferEvery)
	if m.trouble != nil {
		d.trouble = new(*m.trouble) // its time is set with each status
	}
	return d, nil
}

// buffered is what was written of a buffer, and what its autoscaler had said of it then.
type buffered struct {
	want string
	at   time.Time
	answer
}

// bufferEvery is how often it is looked at what the autoscaler says.
const bufferEvery = 15 * time.Second

func (t *term) writeTemplate(ctx context.Context, p *part) error {
	if p.unknown != nil {
		return nil // nothing is held of it, so it is no matter what it looks like
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	templates := t.client.CoreV1().PodTemplates(p.key.namespace)
	fresh := factory.BufferTemplate(p.runner, p.capacity, owner(p.anchor))
	there, err := templates.Get(ctx, p.key.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = templates.Create(ctx, fresh, metav1.CreateOptions{})
		t.metrics.wrote("create podtemplate", err)
	case err == nil && (there.Annotations[factory.AnnotationTemplate] != p.hash || p.orphaned(there)):
		fresh.ResourceVersion = there.ResourceVersion
		_, err = templates.Update(ctx, fresh, metav1.UpdateOptions{})
		t.metrics.wrote("update podtemplate", err)
	}
	if err != nil {
		return fmt.Errorf("write PodTemplate %s/%s: %w", p.key.namespace, p.key.name, err)
	}
	return nil
}

// bufferRequest is a request to the API of CapacityBuffers.
func (t *term) bufferRequest(ctx context.Context, verb, version string, k key, name string, body any) ([]byte, error) {
	path := []string{"/apis", factory.CapacityBufferGroup, version, "namespaces", k.namespace, bufferResource}
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

// writeBuffer makes the buffer what it should be, and returns it.
func (t *term) writeBuffer(ctx context.Context, p *part, version string, body map[string]any) (bufferObject, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	raw, err := t.bufferRequest(ctx, http.MethodGet, version, p.key, p.key.name, nil)
	if apierrors.IsNotFound(err) {
		raw, err = t.bufferRequest(ctx, http.MethodPost, version, p.key, "", body)
		t.metrics.wrote("create capacitybuffer", err)
	} else if err == nil {
		raw, err = t.updateBuffer(ctx, p, version, raw, body)
	}
	var there bufferObject
	if err == nil {
		err = json.Unmarshal(raw, &there)
	}
	if err != nil {
		return bufferObject{}, fmt.Errorf("write CapacityBuffer %s/%s: %w", p.key.namespace, p.key.name, err)
	}
	return there, nil
}

// updateBuffer writes the spec and the owner where they aren't as they should be, and returns the object. What the API server has
// filled in is left alone.
func (t *term) updateBuffer(ctx context.Context, p *part, version string, raw []byte, body map[string]any) ([]byte, error) {
	var there map[string]any
	if err := json.Unmarshal(raw, &there); err != nil {
		return nil, err
	}
	changed := adapt(there, body, "spec")
	var owned metav1.PartialObjectMetadata
	if err := json.Unmarshal(raw, &owned); err != nil {
		return nil, err
	}
	if p.orphaned(&owned) {
		changed = adapt(there, body, "metadata") || changed
	}
	if !changed {
		return raw, nil
	}
	raw, err := t.bufferRequest(ctx, http.MethodPut, version, p.key, p.key.name, there)
	t.metrics.wrote("update capacitybuffer", err)
	return raw, err
}

// adapt sets the fields of a part of an object that differ from those that are wanted, and says whether any did.
func adapt(object, wanted map[string]any, part string) bool {
	fields, _ := object[part].(map[string]any)
	if fields == nil {
		fields = map[string]any{}
	}
	want, _ := wanted[part].(map[string]any)
	changed := false
	for field, value := range want {
		a, _ := json.Marshal(fields[field]) //nolint:errchkjson // it was JSON a moment ago
		b, _ := json.Marshal(value)         //nolint:errchkjson // of texts and numbers
		changed = changed || string(a) != string(b)
	}
	maps.Copy(fields, want)
	object[part] = fields
	return changed
}

// dropBuffer takes away the buffer of a capacity that is held by pause pods now: what the status says of it is how it was.
// The rights for that are those of a configuration that is gone, and so they may be too. Then the cluster does it.
func (t *term) dropBuffer(ctx context.Context, p *part) error {
	if p.before.Strategy == "" || p.before.Strategy == strategy(p.runner) {
		return nil
	}
	err := t.deleteBuffer(ctx, p)
	if apierrors.IsForbidden(err) {
		err = t.renewAnchor(ctx, p)
	}
	if err == nil {
		p.memory.buffer = buffered{}
	}
	return err
}

func (t *term) deleteBuffer(ctx context.Context, p *part) error {
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
	return nil
}
