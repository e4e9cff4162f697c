package cluster_test

import "syscall"

// stopSignal makes a process hang.
const stopSignal = syscall.SIGSTOP
