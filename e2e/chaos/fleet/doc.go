// Package fleet describes many pools on KWOK nodes and runs the manager for them as a process: what the chaos test and the
// pool's benchmark begin with. It refuses to know what either makes of it.
package fleet
