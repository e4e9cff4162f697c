package factory

import (
	"encoding/json"
	"fmt"

	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/entrypoint/wire"
)

// Job is what of a job changes the shape of its pod. The zero value stands for a job that brings nothing of its own: it
// gets what the runner's configuration says.
type Job struct {
	Image      string    // "" = [runners.kubernetes] image
	PullPolicy []string  // of the image, GitLab's words; empty = [runners.kubernetes] pull_policy
	User       string    // image:kubernetes:user, "uid[:gid]"; "" = the configuration's
	Services   []Service // come after the configuration's
}

// Service is one service of a job.
type Service struct {
	Name       string // the image
	Aliases    []string
	Entrypoint []string
	Command    []string
	PullPolicy []string
	// Variables may be secret: they reach the service through a Secret (see Dependents), and only their names are part of the shape.
	Variables map[string]string
}

// Shape is everything about a pod that a job can notice and that is fixed before the job is known.
type Shape struct {
	Protocol    int    `json:"protocol"`
	Namespace   string `json:"namespace,omitempty"`
	Image       string `json:"image,omitempty"`
	HelperImage string `json:"helper_image,omitempty"`
}

// ShapeOf resolves what a job's pod looks like.
func ShapeOf(r config.Runner, job Job) (Shape, error) {
	s := Shape{
		Protocol:    wire.Protocol,
		Namespace:   r.Kubernetes.Namespace,
		Image:       r.Kubernetes.Image,
		HelperImage: r.Kubernetes.HelperImage,
	}
	if job.Image != "" {
		s.Image = job.Image
	}
	if s.Image == "" {
		return Shape{}, fmt.Errorf("%s.kubernetes.image: neither the job nor the configuration names an image", r.Path)
	}
	return s, nil
}

// Hash is the shape hash: short hex, equal for equal shapes whatever release of idlecount computes it.
func (s Shape) Hash() string {
	b, _ := json.Marshal(s) //nolint:errchkjson // no field of Shape can fail
	return shortHash(b)
}

// Difference is what two shapes differ in, by the ways in which Kubernetes lets a running pod change.
type Difference struct {
	Image     bool // of the build container
	Resources bool // requests or limits of build or helper
	Services  bool
	Other     bool // anything that needs another pod
}

// Differs says what sets b apart from a; the zero value means nothing.
func Differs(a, b Shape) Difference {
	return Difference{Image: a.Image != b.Image}
}
