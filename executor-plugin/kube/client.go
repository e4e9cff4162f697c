package kube

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// Client makes calls in one namespace. Its reads and deletes wait out an API server that doesn't answer; its writes are made
// once, since only the caller knows how to find out whether one that failed was made all the same. It is a claim.Pods.
type Client struct {
	config    *rest.Config
	rest      rest.Interface
	codec     runtime.ParameterCodec
	namespace string
	patience  Patience
}

// New makes a client; it makes no call.
func New(cfg *rest.Config, namespace string, patience Patience) (*Client, error) {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Pod{}, &corev1.PodList{}, &corev1.Secret{})
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)

	own := rest.CopyConfig(cfg)
	own.APIPath = "/api"
	own.GroupVersion = &corev1.SchemeGroupVersion
	own.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	patience.outage = &outage{}
	client, err := rest.RESTClientFor(own)
	if err != nil {
		return nil, fmt.Errorf("make a client for %s: %w", cfg.Host, err)
	}
	return &Client{config: cfg, rest: client, codec: runtime.NewParameterCodec(scheme), namespace: namespace, patience: patience}, nil
}

// Get reads a pod from the store.
func (c *Client) Get(ctx context.Context, name string, opts metav1.GetOptions) (*corev1.Pod, error) {
	var pod *corev1.Pod
	err := c.patience.try(ctx, func(ctx context.Context) (err error) {
		pod, err = c.GetOnce(ctx, name, opts)
		return err
	})
	return pod, err
}

// GetOnce is Get without patience.
func (c *Client) GetOnce(ctx context.Context, name string, opts metav1.GetOptions) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	err := c.rest.Get().Namespace(c.namespace).Resource("pods").Name(name).VersionedParams(&opts, c.codec).Do(ctx).Into(pod)
	return pod, c.explain("get", "pods", err)
}

// List reads pods from the store.
func (c *Client) List(ctx context.Context, opts metav1.ListOptions) (*corev1.PodList, error) {
	list := &corev1.PodList{}
	return list, c.patience.try(ctx, func(ctx context.Context) error {
		return c.explain("list", "pods", c.rest.Get().Namespace(c.namespace).Resource("pods").VersionedParams(&opts, c.codec).Do(ctx).Into(list))
	})
}

// Watch begins to watch pods; the caller stops it.
func (c *Client) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	opts.Watch = true
	w, err := c.rest.Get().Namespace(c.namespace).Resource("pods").VersionedParams(&opts, c.codec).Watch(ctx)
	return w, c.explain("watch", "pods", err)
}

// Patch makes one write.
func (c *Client) Patch(ctx context.Context, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	return pod, once(ctx, func(ctx context.Context) error {
		return c.explain("patch", "pods", c.rest.Patch(pt).Namespace(c.namespace).Resource("pods").Name(name).SubResource(subresources...).VersionedParams(&opts, c.codec).Body(data).Do(ctx).Into(pod))
	})
}

// Delete deletes a pod. The caller gives a UID, so that doing it twice does it once.
func (c *Client) Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error {
	return c.patience.try(ctx, func(ctx context.Context) error {
		return c.explain("delete", "pods", c.rest.Delete().Namespace(c.namespace).Resource("pods").Name(name).Body(&opts).Do(ctx).Error())
	})
}

// CreatePod makes one write.
func (c *Client) CreatePod(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	created := &corev1.Pod{}
	return created, once(ctx, func(ctx context.Context) error {
		return c.explain("create", "pods", c.rest.Post().Namespace(c.namespace).Resource("pods").Body(pod).Do(ctx).Into(created))
	})
}

// CreateSecret makes one write.
func (c *Client) CreateSecret(ctx context.Context, secret *corev1.Secret) error {
	return once(ctx, func(ctx context.Context) error {
		return c.explain("create", "secrets", c.rest.Post().Namespace(c.namespace).Resource("secrets").Body(secret).Do(ctx).Error())
	})
}
