// Package pool is the controller: it keeps as many idle pods of each pool as the policy in force wants.
//
// A pass over a pool gathers what the cluster holds, lets plan.Plan decide, and acts: deletes first, then creates, then the
// status in the pool's anchor where it changed. One manager leads at a time, and one worker makes all passes, so that two
// pools of a runner can't share out the same room below its limit. The cluster is the only store: what the package keeps in
// memory (writes that the watch hasn't shown yet, pauses after failures) is only there to be patient, and a restart that
// loses it touches no pod.
//
// It refuses to decide: what to create or delete, and why, is plan's business; what a pod looks like, factory's; which
// policy holds, cron's. It claims nothing: jobs take pods without a manager (pool/claim).
package pool
