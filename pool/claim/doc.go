// Package claim binds idle pods to jobs: one conditional write for a claim, a look-up by job, and a delete that can't hit
// another pod. It is used by drivers, with no controller in between, so it keeps nothing in memory: the cluster is the
// only store, and a job's id is the key that makes a claim idempotent.
//
// It refuses to make pods, to wait for them, and to talk to what runs in them.
package claim
