package images

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// References are the image references to use in a config.toml or a pod, by name.
type References map[Name]string

// Push writes a set to a registry under prefix ("127.0.0.1:5000/idlecount", "registry.example.com/ci") and returns the
// references, prefix/name:tag. Registries on loopback are spoken to over HTTP, all others over HTTPS.
func Push(ctx context.Context, prefix string, set Set, options ...remote.Option) (References, error) {
	references := References{}
	options = append(options, remote.WithContext(ctx))
	for _, image := range slices.Sorted(maps.Keys(set)) {
		tag, err := set.Tag(image)
		if err != nil {
			return nil, err
		}
		reference, err := name.NewTag(fmt.Sprintf("%s/%s:%s", prefix, image, tag))
		if err != nil {
			return nil, fmt.Errorf("push image %s: %w", image, err)
		}
		if err := remote.Write(reference, set[image], options...); err != nil {
			return nil, fmt.Errorf("push image %s: %w", reference, err)
		}
		references[image] = reference.String()
	}
	return references, nil
}
