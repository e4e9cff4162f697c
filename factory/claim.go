package factory

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"idlecount.dev/idlecount/config"
)

// Warmth is what a job got: an idle or warming pod of a pool, or one that was made for it.
type Warmth string

// The values of AnnotationWarmth.
const (
	Warm Warmth = "warm"
	Cold Warmth = "cold"
)

// JobMeta is what a claimed pod says of its job. All of it can be read by whoever may read pods: no field may hold a secret.
type JobMeta struct {
	ID        string        // CI_JOB_ID; the key by which a job's pod is found again
	ClaimedAt time.Time     // when the driver took the pod
	Timeout   time.Duration // of the job; 0 = no activeDeadlineSeconds
	Name      string        // CI_JOB_NAME
	URL       string        // CI_JOB_URL
	SHA       string        // CI_COMMIT_SHA
	BeforeSHA string        // CI_COMMIT_BEFORE_SHA
	Ref       string        // CI_COMMIT_REF_NAME

	ProjectID       string // CI_PROJECT_ID
	ProjectName     string // CI_PROJECT_NAME
	Namespace       string // CI_PROJECT_NAMESPACE
	NamespaceID     string // CI_PROJECT_NAMESPACE_ID
	RootNamespace   string // CI_PROJECT_ROOT_NAMESPACE
	RootNamespaceID string // job_info.root_namespace_id

	// Variables are what `$NAME` in the values of pod_labels and pod_annotations expands to. The caller leaves out masked
	// and file variables: they don't belong in metadata. A name that isn't here expands to nothing, as with GitLab.
	Variables map[string]string
}

// Metadata is a set of labels and annotations to be set on a pod.
type Metadata struct {
	Labels      map[string]string
	Annotations map[string]string
}

// ClaimMetadata is everything that a claim sets in a pod's metadata, whether an idle pod is bound or a cold one is born
// bound. It is the only place that says so.
func ClaimMetadata(r config.Runner, job JobMeta, warmth Warmth) Metadata {
	m := Metadata{
		Labels: map[string]string{
			LabelState: StateClaimed,
			LabelJob:   labelValue(job.ID),
		},
		Annotations: map[string]string{
			AnnotationClaimedAt:    job.ClaimedAt.UTC().Format(time.RFC3339),
			AnnotationWarmth:       string(warmth),
			AnnotationSafeToEvict:  "false",
			AnnotationDoNotDisrupt: "true",
		},
	}
	return m
}

// DeadlineSlack is what a pod may live longer than its job's timeout: GitLab's after_script has five minutes of its own
// behind it, and the last uploads want a moment.
const DeadlineSlack = 6 * time.Minute

// ActiveDeadline is the activeDeadlineSeconds of the pod of a job. Kubernetes counts it from the pod's status.startTime,
// so a warm pod's past is added; started is nil while the kubelet has not seen the pod. Nil = none.
func ActiveDeadline(started *metav1.Time, job JobMeta) *int64 {
	if job.Timeout <= 0 {
		return nil
	}
	whole := job.Timeout + DeadlineSlack
	if started != nil {
		whole += max(0, job.ClaimedAt.Sub(started.Time))
	}
	return new(min(int64((whole+time.Second-1)/time.Second), maxActiveDeadline))
}

// maxActiveDeadline is the largest activeDeadlineSeconds that the API server takes.
const maxActiveDeadline = 1<<31 - 1
