// Package factory turns a runner's configuration and what is known of a job into Kubernetes objects: the shape, the idle
// pod, the pod of a cold job, a pool's anchor, and the labels and annotations by which all parts of idlecount find them.
//
// It is pure: equal arguments give equal objects. It has no client, no clock and no randomness; names, times and owners
// are arguments. It knows the keys of a pod's labels and annotations so that no other package has to spell them.
package factory
