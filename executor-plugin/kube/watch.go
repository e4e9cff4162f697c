package kube

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"

	"idlecount.dev/idlecount/pool/claim"
)

// refusals is how many answers in a row of an API server that forbids the watch are believed: one that has just started
// forbids everything for a moment, until it has read the roles.
const refusals = 5

// WatchPod calls see with the states of a pod that follow the given one, until see returns false or ctx ends; broken
// watches are made again. Gone is true, and the pod as it was seen last, where the pod isn't there any more; that is the
// last call. An error means that the pod can't be watched.
func (c *Client) WatchPod(ctx context.Context, pod *corev1.Pod, see func(pod *corev1.Pod, gone bool) (more bool)) error {
	w := podWatch{client: c, last: pod, version: pod.ResourceVersion, see: see}
	refused := 0
	for n := 1; ctx.Err() == nil; n++ {
		before := w.version
		more, err := w.follow(ctx)
		if !more {
			return nil
		}
		if w.version != before {
			n, refused = 1, 0
		}
		if err != nil && !claim.Transient(err) && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			if refused++; refused >= refusals {
				return err
			}
		}
		select {
		case <-time.After(backoff(n)):
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

type podWatch struct {
	client  *Client
	see     func(pod *corev1.Pod, gone bool) bool
	last    *corev1.Pod
	version string // resourceVersion to go on from, "" = look first
}

// follow makes one watch and follows it to its end; more is false when there is nothing left to see.
func (w *podWatch) follow(ctx context.Context) (more bool, err error) {
	if w.version == "" {
		pod, err := w.client.Get(ctx, w.last.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			w.see(w.last, true)
			return false, nil
		}
		if err != nil {
			return true, err
		}
		if !w.show(pod) {
			return false, nil
		}
	}
	selector := fields.OneTermEqualSelector("metadata.name", w.last.Name).String()
	events, err := w.client.Watch(ctx, metav1.ListOptions{FieldSelector: selector, ResourceVersion: w.version, AllowWatchBookmarks: true})
	if err != nil {
		w.forget(err)
		return true, err
	}
	defer events.Stop()
	for event := range events.ResultChan() {
		if event.Type == watch.Error {
			err := apierrors.FromObject(event.Object)
			w.forget(err)
			return true, err
		}
		pod, ok := event.Object.(*corev1.Pod)
		switch {
		case !ok:
		case event.Type == watch.Bookmark:
			w.version = pod.ResourceVersion
		case event.Type == watch.Deleted && pod.UID == w.last.UID:
			w.see(pod, true)
			return false, nil
		case event.Type == watch.Added || event.Type == watch.Modified:
			if !w.show(pod) {
				return false, nil
			}
		}
	}
	return true, nil
}

// forget makes the next watch begin with a look where the API server no longer has the version to go on from.
func (w *podWatch) forget(err error) {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		w.version = ""
	}
}

// show passes a state on; another pod of the same name means that this one is gone.
func (w *podWatch) show(pod *corev1.Pod) (more bool) {
	w.version = pod.ResourceVersion
	if pod.UID != w.last.UID {
		w.see(w.last, true)
		return false
	}
	w.last = pod
	return w.see(pod, false)
}
