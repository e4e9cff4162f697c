// Package capacity holds room for the next jobs of a runner: pause pods that a job's pod preempts, or a CapacityBuffer of
// the cluster autoscaler. It works for any executor, since all that it knows of jobs is the labels of their pods.
//
// It owns the objects with factory.LabelCapacity, and the PriorityClass of pause pods where that is missing. It makes no pod
// that could run a job, takes part in no election (a Keeper is led by whoever has the managers' lease), and keeps nothing
// that a restart could lose: what is there is in the cluster, since when something is surplus is an annotation.
//
// One pass per namespace: gather what the watches show, decide with capacity/plan, act. What the API server refuses is told
// in the status and tried again.
package capacity
