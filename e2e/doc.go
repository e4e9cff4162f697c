// Package e2e is only its tests: each runs jobs through the real idlecount-executor, as GitLab Runner calls it, against
// pods on a real kubelet, with the real manager as a process. Each test file is about one promise to the people whose jobs
// these are. The packages below it are what the tests stand on: a cluster, images, a stand-in for GitLab Runner.
package e2e
