package diagnosis

import (
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"idlecount.dev/idlecount/factory"
)

// AskedInVain says whether the API server refuses a pod for nothing but what its job chose: its image, its user, its
// services. services is how many of these the pod has: those of the runner, then those of the job.
func AskedInVain(err error, job factory.Job, services int) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	chosen := choices(job, services)
	causes := status.Status().Details.Causes
	return len(causes) > 0 && !slices.ContainsFunc(causes, func(c metav1.StatusCause) bool { return !slices.Contains(chosen, c.Field) })
}

// choices are the fields of a pod in which a job's words stand as they are. The first container is build, the first init
// container our own.
func choices(job factory.Job, services int) []string {
	var fields []string
	user := func(container string) {
		fields = append(fields, container+".securityContext.runAsUser", container+".securityContext.runAsGroup")
	}
	if job.Image != "" {
		fields = append(fields, "spec.containers[0].image")
	}
	if job.User != "" {
		user("spec.containers[0]")
	}
	// A service without a name isn't in the pod.
	asked := slices.DeleteFunc(slices.Clone(job.Services), func(s factory.Service) bool { return s.Name == "" })
	for i, service := range asked {
		container := fmt.Sprintf("spec.initContainers[%d]", 1+services-len(asked)+i)
		fields = append(fields, container+".image")
		if service.User != "" {
			user(container)
		}
	}
	return fields
}
