package factory

import (
	"fmt"
	"strconv"
	"strings"
)

// Job is what of a job changes the shape of its pod. The zero value stands for a job that brings nothing of its own: it
// gets what the runner's configuration says.
type Job struct {
	Image      string    // "" = [runners.kubernetes] image
	PullPolicy []string  // of the image, GitLab's words; empty = [runners.kubernetes] pull_policy
	User       string    // image:kubernetes:user, "uid[:gid]"; "" = the configuration's
	Services   []Service // come after the configuration's
}

// Service is one service of a job (GitLab Runner: services of JOB_RESPONSE_FILE).
type Service struct {
	Name       string   // the image
	Aliases    []string // names of the service; one may hold several, split by commas or blanks
	Entrypoint []string
	Command    []string
	PullPolicy []string
	User       string // as Job.User
	// Variables is the service's environment: the job's variables with the service's own over them, as far as it may see
	// them. They may be secret: only their names are part of the shape, the values reach the service through a Secret (see
	// Dependents).
	Variables map[string]string
}

// JobError is why a job can't have a pod: what it asks for is wrong or not allowed. Trying again doesn't help, and
// nobody but the job's author can help.
type JobError struct {
	Field   string // of .gitlab-ci.yml, e.g. "services[0].alias"
	Message string
}

func (e *JobError) Error() string { return e.Field + ": " + e.Message }

// ParseUser reads the user that a job asks for, "uid[:gid]" or nothing. GitLab warns of one that it can't read and goes
// on without; so does ShapeOf, and Warnings says so.
func ParseUser(user string) (uid, gid *int64, err error) {
	u, g, _ := strings.Cut(user, ":")
	if uid, err = parseID(u); err != nil {
		return nil, nil, fmt.Errorf("user %q: %w", user, err)
	}
	if gid, err = parseID(g); err != nil {
		return nil, nil, fmt.Errorf("group of user %q: %w", user, err)
	}
	return uid, gid, nil
}

func parseID(text string) (*int64, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // no id and no error: the job names none
	}
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil || id < 0 {
		return nil, fmt.Errorf("%q is not a numeric id", text)
	}
	return &id, nil
}
