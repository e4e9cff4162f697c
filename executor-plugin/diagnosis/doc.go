// Package diagnosis reads from a pod's status, and from the API server's refusals, what the log of a job has to say: how a
// pod comes up, why it doesn't and whether it still may, and why one has ended. It is pure.
package diagnosis
