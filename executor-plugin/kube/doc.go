// Package kube is the driver's way to a cluster: the few calls on pods and secrets of one namespace that it makes, each
// tried again while the API server can't be reached, and a stream to a process in a container.
//
// The driver is started five times and more for each job, so what runs before main counts. That is why the package doesn't
// use client-go's clientset, which registers every API group of Kubernetes at its start (some four milliseconds), but its
// REST client with the three kinds that it needs, spoken as protobuf, without discovery.
package kube
