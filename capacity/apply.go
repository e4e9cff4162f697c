package capacity

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"idlecount.dev/idlecount/capacity/plan"
	"idlecount.dev/idlecount/capacity/status"
	"idlecount.dev/idlecount/factory"
)

// createAnchor makes the anchor of a capacity. It names the managers' lease from the beginning: by that a later leader knows
// it as its own, also where the runner has left the configuration. Nil where the watch hasn't shown one that is there.
func (t *term) createAnchor(ctx context.Context, p *part) (*corev1.ConfigMap, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	anchor := factory.PauseAnchor(p.runner, p.capacity)
	anchor.Annotations = p.memory.said
	p.before = t.status(p, plan.Result{}, nil)
	anchor.Data = map[string]string{factory.AnchorStatusKey: p.before.Encode()}
	made, err := t.client.CoreV1().ConfigMaps(p.key.namespace).Create(ctx, anchor, metav1.CreateOptions{})
	t.metrics.wrote("create anchor", err)
	if apierrors.IsAlreadyExists(err) {
		if at := p.memory.anchorAt; !at.IsZero() && t.clock.Since(at) < notShown {
			return nil, nil //nolint:nilnil // made by us a moment ago; the watch will show it
		}
		return nil, fmt.Errorf("a ConfigMap %s/%s exists and isn't labelled %s=%s, so it is not the capacity's anchor; delete or rename it: %w",
			p.key.namespace, p.key.name, factory.LabelCapacity, p.key.name, err)
	}
	if err != nil {
		return nil, fmt.Errorf("create the anchor, ConfigMap %s/%s: %w", p.key.namespace, p.key.name, err)
	}
	p.memory.anchorAt, p.memory.said = t.clock.Now(), nil
	t.log.Info("capacity begins", "capacity", p.key.name, "namespace", p.key.namespace, "runner", p.runner)
	return made, nil
}

// renewAnchor makes the anchor anew, for the cluster takes away what the old one owns, whatever the manager itself may delete. What
// users have said of the capacity stands in the new one too. The part has no anchor where the watch hasn't shown that one.
func (t *term) renewAnchor(ctx context.Context, p *part) error {
	old := p.anchor
	p.anchor, p.memory.said = nil, old.Annotations
	if _, err := t.deleteAnchor(ctx, old); err != nil {
		return err
	}
	var err error
	p.anchor, err = t.createAnchor(ctx, p)
	return err
}

// notShown is how long a watch may take to show what this manager has written.
const notShown = 10 * time.Second

// apply makes the Deployment hold what the plan says. Each write names the version that was decided on: a conflict means
// that the watch will show another one, and another pass decides again.
func (t *term) apply(ctx context.Context, p *part, r plan.Result) error {
	d := p.deployment
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	deployments := t.client.AppsV1().Deployments(p.key.namespace)
	surplus := ""
	if !r.Surplus.IsZero() {
		surplus = r.Surplus.UTC().Format(time.RFC3339)
	}
	var err error
	switch {
	case d == nil && r.Hold == 0, d != nil && d.DeletionTimestamp != nil:
		return nil
	case d == nil:
		err = t.makeDeployment(ctx, p, r)
	case p.outdated(), p.orphaned(d), t.edited(ctx, p):
		var now *appsv1.Deployment
		now, err = deployments.Update(ctx, p.updated(r.Hold, surplus), metav1.UpdateOptions{})
		t.wrote("update deployment", p, p.have.Held, r.Hold, err)
		p.memory.holds(now, err)
	case int(*d.Spec.Replicas) != r.Hold || d.Annotations[factory.AnnotationSurplusSince] != surplus:
		var now *appsv1.Deployment
		now, err = deployments.Patch(ctx, p.key.name, types.MergePatchType, scaled(d, r.Hold, surplus), metav1.PatchOptions{})
		t.wrote("scale deployment", p, p.have.Held, r.Hold, err)
		if p.memory.written == versionOf(d) {
			p.memory.holds(now, err)
		}
	}
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) && d != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("hold capacity by Deployment %s/%s: %w", p.key.namespace, p.key.name, err)
	}
	return nil
}

// makeDeployment makes the Deployment that the watch doesn't show.
func (t *term) makeDeployment(ctx context.Context, p *part, r plan.Result) error {
	fresh := factory.PauseDeployment(p.runner, p.capacity, r.Hold, owner(p.anchor))
	made, err := t.client.AppsV1().Deployments(p.key.namespace).Create(ctx, fresh, metav1.CreateOptions{})
	t.wrote("create deployment", p, 0, r.Hold, err)
	p.memory.holds(made, err)
	if err == nil {
		p.memory.madeAt = t.clock.Now()
	}
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	if at := p.memory.madeAt; !at.IsZero() && t.clock.Since(at) < notShown {
		return nil // made by us a moment ago; the watch will show it
	}
	return fmt.Errorf("it exists and isn't labelled %s; delete or rename it: %w", factory.LabelCapacity, err)
}

// updated is the Deployment as it should be.
func (p *part) updated(hold int, surplus string) *appsv1.Deployment {
	next := p.deployment.DeepCopy()
	fresh := factory.PauseDeployment(p.runner, p.capacity, hold, owner(p.anchor))
	next.Labels, next.OwnerReferences, next.Spec = fresh.Labels, fresh.OwnerReferences, fresh.Spec
	next.Annotations = annotated(next.Annotations, p.hash, surplus)
	return next
}

// orphaned says whether an object isn't owned by the anchor: somebody may have deleted an anchor without what it owned. One that is
// going would take along what it is given.
func (p *part) orphaned(object metav1.Object) bool {
	return p.anchor.DeletionTimestamp == nil && !metav1.IsControlledBy(object, p.anchor)
}

// edited says whether somebody has changed the Deployment, its number of pods aside, since it was made as it should be. By its
// generation that is seen; whether one that isn't known is ours is for the API server to say, whose defaults and webhooks add to
// what we write: ours would make another generation then. Nothing is written for that.
func (t *term) edited(ctx context.Context, p *part) bool {
	d := p.deployment
	if p.memory.written == versionOf(d) {
		return false
	}
	ours := p.updated(int(*d.Spec.Replicas), d.Annotations[factory.AnnotationSurplusSince])
	there, err := t.client.AppsV1().Deployments(d.Namespace).Update(ctx, ours, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
	switch {
	case err == nil && there.Generation != d.Generation:
		t.log.Warn("somebody has edited the Deployment, which is made as it was", "capacity", p.key.name, "namespace", p.key.namespace)
		return true
	case err == nil, lasting(err): // such as a webhook that knows no dry runs: to ask again would be vain
		p.memory.written = versionOf(d)
	}
	return false
}

// holds notes which version of the Deployment is as it should be: that of a write.
func (m *memory) holds(d *appsv1.Deployment, err error) {
	if err == nil {
		m.written = versionOf(d)
	}
}

func versionOf(d *appsv1.Deployment) version { return version{d.UID, d.Generation} }

// scaled is the patch that makes a Deployment, in the version that was decided on, ask for so many pods.
func scaled(d *appsv1.Deployment, hold int, surplus string) []byte {
	var since any // null takes the annotation away
	if surplus != "" {
		since = surplus
	}
	patch, _ := json.Marshal(map[string]any{ //nolint:errchkjson // texts and numbers can't fail
		"metadata": map[string]any{"resourceVersion": d.ResourceVersion, "annotations": map[string]any{factory.AnnotationSurplusSince: since}},
		"spec":     map[string]any{"replicas": hold},
	})
	return patch
}

func annotated(annotations map[string]string, hash, surplus string) map[string]string {
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[factory.AnnotationTemplate] = hash
	delete(annotations, factory.AnnotationSurplusSince)
	if surplus != "" {
		annotations[factory.AnnotationSurplusSince] = surplus
	}
	return annotations
}

func owner(anchor *corev1.ConfigMap) factory.Owner {
	return factory.Owner{Name: anchor.Name, UID: anchor.UID}
}

// wrote counts a write, and logs what it has changed.
func (t *term) wrote(operation string, p *part, from, to int, err error) {
	t.metrics.wrote(operation, err)
	if err == nil && from != to {
		t.log.Info("capacity changes", "capacity", p.key.name, "from", from, "to", to, "policy", p.calendar.At(p.now).Policy, "jobs", p.have.Jobs)
	}
}

// writeStatus sets the status in the anchor, where it has changed, and touches nothing else of it: annotations there are the
// user's.
func (t *term) writeStatus(ctx context.Context, p *part, s status.Status) error {
	encoded := s.Encode()
	if encoded == p.anchor.Data[factory.AnchorStatusKey] {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": p.anchor.UID}, // of this anchor, not of one that was made anew
		"data":     map[string]string{factory.AnchorStatusKey: encoded},
	})
	if err != nil {
		return err
	}
	made, err := t.client.CoreV1().ConfigMaps(p.key.namespace).Patch(ctx, p.key.name, types.MergePatchType, patch, metav1.PatchOptions{})
	t.metrics.wrote("patch anchor", err)
	if err == nil {
		p.memory.anchor = rewritten{over: p.anchor.ResourceVersion, made: made}
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err) {
		return nil // gone, or another one by now; the watch will show that
	}
	if err != nil {
		return fmt.Errorf("write the status into ConfigMap %s/%s: %w", p.key.namespace, p.key.name, err)
	}
	return nil
}

// remove ends a capacity that has left the configuration. What else its anchor owns goes with the anchor.
func (t *term) remove(ctx context.Context, n *namespaceCache, anchor *corev1.ConfigMap) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if d := n.deployment(anchor.Namespace, anchor.Name); d != nil && d.DeletionTimestamp == nil {
		if err := t.deleteDeployment(ctx, d); err != nil {
			return err
		}
	}
	gone, err := t.deleteAnchor(ctx, anchor)
	if err != nil {
		return err
	}
	t.metrics.hide(key{anchor.Namespace, anchor.Name})
	delete(t.memory, key{anchor.Namespace, anchor.Name})
	if gone {
		t.log.Info("capacity ends", "capacity", anchor.Name, "namespace", anchor.Namespace)
	}
	return nil
}

// deleteAnchor deletes this anchor, and not one that was made anew; gone is whether it was still there.
func (t *term) deleteAnchor(ctx context.Context, anchor *corev1.ConfigMap) (gone bool, err error) {
	err = t.client.CoreV1().ConfigMaps(anchor.Namespace).Delete(ctx, anchor.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &anchor.UID}, PropagationPolicy: new(metav1.DeletePropagationBackground),
	})
	t.metrics.wrote("delete anchor", err)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return false, fmt.Errorf("delete the anchor, ConfigMap %s/%s: %w", anchor.Namespace, anchor.Name, err)
	}
	return err == nil, nil
}

func (t *term) deleteDeployment(ctx context.Context, d *appsv1.Deployment) error {
	err := t.client.AppsV1().Deployments(d.Namespace).Delete(ctx, d.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &d.UID}, PropagationPolicy: new(metav1.DeletePropagationBackground),
	})
	t.metrics.wrote("delete deployment", err)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete Deployment %s/%s: %w", d.Namespace, d.Name, err)
	}
	return nil
}
