// Package preflight looks, before jobs do, for what would keep pods from being made and started: rights that are missing,
// pods that the API server refuses, quotas that are too small, images that can't be had, clocks that differ.
//
// Each check asks and changes nothing: pods are made as a dry run, of images only the registry's word for their manifest
// is asked for. What can't be found out is said to be unknown; it is never guessed. Nothing that is secret gets into a
// result: of pull secrets only the names.
//
// It owns no command line and no loop: `idlecount doctor` prints its results, the manager logs those that are bad.
package preflight
