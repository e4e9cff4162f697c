// Package runner stands in for GitLab Runner where a custom executor driver is tested: it calls the driver as GitLab Runner
// 19.4 does, with the same order, retries, files, environment, process groups and signals, and turns what the driver
// answers into the same end of a job. It knows nothing of idlecount: the driver is whatever [runners.custom] of a
// config.toml names.
//
// A job is either a Job, for which scripts are generated in the structure of GitLab's bash scripts, or a Recording, whose
// scripts, variables and payload were recorded from a real GitLab Runner.
//
// It leaves out what no driver can see: polling, the upload of logs, masking (tests want to see what a driver printed), and
// time stamps in logs.
package runner
