package factory

import (
	"fmt"
	"strings"

	"idlecount.dev/idlecount/config"
)

// Allowed says whether the runner lets a job use the images that it asks for (GitLab: allowed_images, allowed_services).
// The error is a *JobError that lists what is allowed. Which pull policies are is part of the shape: see ShapeOf.
func Allowed(r config.Runner, job Job) error {
	k := r.Kubernetes
	if job.Image != "" && !k.AllowsImage(job.Image) {
		return notAllowed("image", job.Image, "allowed_images", k.AllowedImages)
	}
	for i, service := range job.Services {
		if service.Name != "" && !k.AllowsService(service.Name) {
			return notAllowed(fmt.Sprintf("services[%d]", i), service.Name, "allowed_services", k.AllowedServices)
		}
	}
	return nil
}

func notAllowed(field, image, key string, patterns []string) error {
	return &JobError{Field: field, Message: fmt.Sprintf(
		"the runner doesn't allow the image %q; %s in its configuration has:\n- %s", image, key, strings.Join(patterns, "\n- "))}
}

// Warnings are what a job asks for and doesn't get, and is run without: users that can't be read or aren't allowed (GitLab:
// allowed_users, allowed_groups). A user that the configuration overrides isn't worth one.
func Warnings(r config.Runner, job Job) []string {
	r = r.ForImage(job.Image)
	warnings := userWarnings("image:kubernetes:user", r.Kubernetes, r.Kubernetes.BuildContainerSecurityContext, job.User)
	for i, service := range job.Services {
		field := fmt.Sprintf("services[%d]:kubernetes:user", i)
		warnings = append(warnings, userWarnings(field, r.Kubernetes, r.Kubernetes.ServiceContainerSecurityContext, service.User)...)
	}
	return warnings
}

func userWarnings(field string, k config.Kubernetes, container config.ContainerSecurityContext, user string) []string {
	uid, gid, err := ParseUser(user)
	if err != nil {
		return []string{fmt.Sprintf("%s is left out: %v", field, err)}
	}
	var warnings []string
	say := func(kind string, id int64, key string, allowed []string) {
		text := "all but 0"
		if len(allowed) > 0 {
			text = strings.Join(allowed, ", ")
		}
		warnings = append(warnings, fmt.Sprintf("%s: %s %d is left out: the runner doesn't allow it (%s: %s)", field, kind, id, key, text))
	}
	if uid != nil && first(container.RunAsUser, k.PodSecurityContext.RunAsUser) == nil && !k.AllowsUser(*uid) {
		say("user", *uid, "allowed_users", k.AllowedUsers)
	}
	if gid != nil && first(container.RunAsGroup, k.PodSecurityContext.RunAsGroup) == nil && !k.AllowsGroup(*gid) {
		say("group", *gid, "allowed_groups", k.AllowedGroups)
	}
	return warnings
}
