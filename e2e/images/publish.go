package images

import (
	"context"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// References are the image references to use in a config.toml or a pod, by name.
type References map[Name]string

// publisher is what of a cluster.Target is needed here.
type publisher interface {
	Publish(ctx context.Context, images map[string]v1.Image) (map[string]string, error)
}

// Publish makes the set usable for pods of a cluster.
func (s Set) Publish(ctx context.Context, target publisher) (References, error) {
	named := map[string]v1.Image{}
	for name, image := range s {
		named[string(name)] = image
	}
	published, err := target.Publish(ctx, named)
	if err != nil {
		return nil, err
	}
	references := References{}
	for name := range s {
		references[name] = published[string(name)]
	}
	return references, nil
}
