// Command idlecount-executor is idlecount's driver for the custom executor of GitLab Runner: the runner starts it once for
// each stage of a job (config, prepare, run …, cleanup). It claims a warm pod for the job, or makes one, and runs the job's
// scripts in it. It keeps nothing between its stages: the cluster is the only store, and the job's id the key. It never
// asks the manager for anything, so jobs start while none runs.
package main
