// Package plan decides what a pool needs: how many pods to create, which to delete and why, and when to look again.
//
// Plan is a pure function of the time, what is wanted and what there is. It imports nothing of Kubernetes: the words it
// uses for a pod's life are those of the project, and whoever calls it translates.
//
// The rules it keeps, whatever it is given:
//
//   - A claimed pod is never deleted while it runs and its deadline hasn't long passed.
//   - No pod is created beyond what is wanted, the replacements of pods that expire soon, the surge while pods are replaced by
//     those of a changed configuration, and the runner's limit.
//   - What was decided once is not decided again: a plan that is carried out leaves nothing to do.
//   - Equal pods in another order give an equal plan.
package plan
