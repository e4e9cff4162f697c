package pool

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/pool/status"
)

// inherited are the annotations that the anchor of a pool takes over from those of the pools that it replaces: what
// somebody has paused or drained stays so when its shape changes.
func inherited(formers []*corev1.ConfigMap) map[string]string {
	taken := map[string]string{}
	for _, former := range formers {
		if paused(former) {
			taken[factory.AnnotationPaused] = former.Annotations[factory.AnnotationPaused]
		}
		if drained(former) {
			taken[factory.AnnotationDrained] = former.Annotations[factory.AnnotationDrained]
		}
	}
	return taken
}

// createAnchor makes the anchor of a pool. It names the managers' lease from the beginning: by that a later leader knows
// the anchor as its own, also where the pool has left the configuration.
func (w *writer) createAnchor(ctx context.Context, p *pool, s status.Status, annotations map[string]string) (*corev1.ConfigMap, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	anchor := factory.Anchor(p.runner, p.shape)
	maps.Copy(anchor.Annotations, annotations)
	anchor.Data = map[string]string{factory.AnchorStatusKey: s.Encode()}
	made, err := w.client.CoreV1().ConfigMaps(p.key.namespace).Create(ctx, anchor, metav1.CreateOptions{})
	w.metrics.wrote("create anchor", result(err))
	if err != nil {
		return nil, fmt.Errorf("create the anchor, ConfigMap %s: %w", p.key, err)
	}
	w.log.Info("pool begins", "pool", p.key.name, "namespace", p.key.namespace, "image", p.image, "runner", p.runner)
	return made, nil
}

// adoptAnchor gives the anchor of a pool its labels back, without which no watch shows it. A ConfigMap that only has the
// anchor's name is left alone; the error says what to do about it.
func (w *writer) adoptAnchor(ctx context.Context, p *pool) (*corev1.ConfigMap, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	anchors := w.client.CoreV1().ConfigMaps(p.key.namespace)
	// The manager may list ConfigMaps; to get one is another permission, which nothing else needs.
	found, err := anchors.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + p.key.name})
	if err != nil {
		return nil, fmt.Errorf("look at ConfigMap %s, which has the name of the pool's anchor: %w", p.key, err)
	}
	if len(found.Items) == 0 {
		return nil, fmt.Errorf("ConfigMap %s existed a moment ago and is gone; its place is taken with the next try", p.key)
	}
	there, want := &found.Items[0], factory.Anchor(p.runner, p.shape)
	if s, err := status.Of(there); there.Annotations[factory.AnnotationImage] != p.shape.Image && (err != nil || s.Shape != p.shape.Hash()) {
		return nil, fmt.Errorf("a ConfigMap %s exists that is not the pool's anchor; delete or rename it: %w", p.key,
			apierrors.NewAlreadyExists(corev1.Resource("configmaps"), p.key.name))
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": there.UID, "labels": want.Labels, "annotations": want.Annotations,
	}})
	if err != nil {
		return nil, err
	}
	adopted, err := anchors.Patch(ctx, p.key.name, types.MergePatchType, patch, metav1.PatchOptions{})
	w.metrics.wrote("patch anchor", result(err))
	if err != nil {
		return nil, fmt.Errorf("label the anchor, ConfigMap %s: %w", p.key, err)
	}
	w.log.Warn("the pool's anchor had lost its labels and has got them back", "pool", p.key.name, "namespace", p.key.namespace)
	return adopted, nil
}

// writeStatus sets the status in an anchor and touches nothing else of it: annotations there are the user's.
func (w *writer) writeStatus(ctx context.Context, anchor *corev1.ConfigMap, encoded string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": anchor.UID}, // of this anchor, not of one that was made anew
		"data":     map[string]string{factory.AnchorStatusKey: encoded},
	})
	if err != nil {
		return err
	}
	_, err = w.client.CoreV1().ConfigMaps(anchor.Namespace).Patch(ctx, anchor.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	w.metrics.wrote("patch anchor", result(err))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err) {
		return nil // gone, or another one by now (its UID can't be changed); the watch will show that
	}
	if err != nil {
		return fmt.Errorf("write the status into ConfigMap %s/%s: %w", anchor.Namespace, anchor.Name, err)
	}
	return nil
}

// deleteAnchor ends a pool that has no pods any more.
func (w *writer) deleteAnchor(ctx context.Context, anchor *corev1.ConfigMap) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err := w.client.CoreV1().ConfigMaps(anchor.Namespace).Delete(ctx, anchor.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &anchor.UID},
	})
	w.metrics.wrote("delete anchor", result(err))
	switch {
	case err == nil:
		w.log.Info("pool ends", "pool", anchor.Name, "namespace", anchor.Namespace, "image", anchor.Annotations[factory.AnnotationImage])
		return nil
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return nil
	default:
		return fmt.Errorf("delete the anchor, ConfigMap %s/%s: %w", anchor.Namespace, anchor.Name, err)
	}
}
