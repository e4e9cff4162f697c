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

// Labels and annotations that GitLab's kubernetes executor sets on a job's pod (GitLab Runner: "Default labels for job
// pods", "Default annotations for job pods"). Dashboards, network policies and cost reports go by them.
const (
	LabelGitLabPod             = "pod"
	LabelGitLabJobPod          = "job.runner.gitlab.com/pod"
	LabelGitLabProject         = "project.runner.gitlab.com/id"
	LabelGitLabProjectName     = "project.runner.gitlab.com/name"
	LabelGitLabNamespace       = "project.runner.gitlab.com/namespace"
	LabelGitLabNamespaceID     = "project.runner.gitlab.com/namespace-id"
	LabelGitLabRootNamespace   = "project.runner.gitlab.com/root-namespace"
	LabelGitLabRootNamespaceID = "project.runner.gitlab.com/root-namespace-id"
	LabelGitLabManager         = "manager.runner.gitlab.com/name"
	LabelGitLabManagerID       = "manager.runner.gitlab.com/id-short"

	AnnotationGitLabJob       = "job.runner.gitlab.com/id"
	AnnotationGitLabURL       = "job.runner.gitlab.com/url"
	AnnotationGitLabSHA       = "job.runner.gitlab.com/sha"
	AnnotationGitLabBeforeSHA = "job.runner.gitlab.com/before_sha"
	AnnotationGitLabRef       = "job.runner.gitlab.com/ref"
	AnnotationGitLabName      = "job.runner.gitlab.com/name"
	AnnotationGitLabTimeout   = "job.runner.gitlab.com/timeout"
	AnnotationGitLabProject   = "project.runner.gitlab.com/id"
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

	ConcurrentID    string // CI_CONCURRENT_PROJECT_ID; part of what GitLab names the pod in its label
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
// bound. It is the only place that says so. A key whose value isn't known is left out.
func ClaimMetadata(r config.Runner, job JobMeta, warmth Warmth) Metadata {
	m := Metadata{Labels: map[string]string{}, Annotations: map[string]string{}}
	m.gitLab(r, job)
	for key, value := range userLabels(&r.Kubernetes) {
		if ofJob(value) {
			m.Labels[key] = labelValue(expand(value, job.Variables))
		}
	}
	for key, value := range userAnnotations(&r.Kubernetes) {
		// Those without variables are there from birth, and would be lost again where they stand over one of GitLab's.
		if _, overridden := m.Annotations[key]; overridden || ofJob(value) {
			m.Annotations[key] = expand(value, job.Variables)
		}
	}
	m.Labels[LabelState] = StateClaimed
	m.Labels[LabelJob] = labelValue(job.ID)
	m.Annotations[AnnotationClaimedAt] = job.ClaimedAt.UTC().Format(time.RFC3339)
	m.Annotations[AnnotationWarmth] = string(warmth)
	m.Annotations[AnnotationSafeToEvict] = "false"
	m.Annotations[AnnotationDoNotDisrupt] = "true"
	return m
}

// gitLab sets the keys of GitLab's executor.
func (m Metadata) gitLab(r config.Runner, job JobMeta) {
	if job.ProjectID != "" {
		pod := "runner-" + r.ShortToken() + "-project-" + job.ProjectID + "-concurrent-" + job.ConcurrentID
		m.label(LabelGitLabPod, dnsLabel(pod, maxLabelValue))
		m.label(LabelGitLabJobPod, dnsLabel(pod, maxLabelValue))
	}
	m.label(LabelGitLabProject, job.ProjectID)
	m.label(LabelGitLabProjectName, job.ProjectName)
	m.label(LabelGitLabNamespace, job.Namespace)
	m.label(LabelGitLabNamespaceID, job.NamespaceID)
	m.label(LabelGitLabRootNamespace, job.RootNamespace)
	m.label(LabelGitLabRootNamespaceID, job.RootNamespaceID)
	m.label(LabelGitLabManager, r.Name)
	m.label(LabelGitLabManagerID, r.ShortToken())

	m.annotate(AnnotationGitLabJob, job.ID)
	m.annotate(AnnotationGitLabURL, job.URL)
	m.annotate(AnnotationGitLabSHA, job.SHA)
	m.annotate(AnnotationGitLabBeforeSHA, job.BeforeSHA)
	m.annotate(AnnotationGitLabRef, job.Ref)
	m.annotate(AnnotationGitLabName, job.Name)
	m.annotate(AnnotationGitLabProject, job.ProjectID)
	if job.Timeout > 0 {
		m.annotate(AnnotationGitLabTimeout, job.Timeout.String())
	}
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
