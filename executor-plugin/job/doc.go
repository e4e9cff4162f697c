// Package job reads what GitLab Runner tells its custom executor driver about a job: the environment (CUSTOM_ENV_*) and
// the file JOB_RESPONSE_FILE. It is pure but for the reading of that file, and it decides which of a job's variables may
// leave it: what is masked, a file or not public reaches neither a pod's metadata nor a message.
package job
