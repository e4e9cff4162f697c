package fleet

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/factory"
)

// Runner is a [[runners]] entry with a pool for each of its images.
type Runner struct {
	Token     string // at least 9 characters; the first 9 name the runner
	Namespace string
	Images    int           // pools: job:1, job:2, …
	Count     int           // idle pods of each
	IdleTime  time.Duration // of each pod
	Limit     int           // 0 = none
}

// Pods is how many idle pods all pools of the runner want.
func (r Runner) Pods() int { return r.Images * r.Count }

// Image names one of the runner's images, from 0.
func (r Runner) Image(i int) string { return fmt.Sprintf("job:%d", i+1) }

// TOML is the entry as it stands in config.toml. Its pods run on KWOK nodes: nobody pulls their images.
func (r Runner) TOML() string {
	images := make([]string, r.Images)
	for i := range images {
		images[i] = fmt.Sprintf("%q", r.Image(i))
	}
	return fmt.Sprintf(`[[runners]]
  name = %[1]q
  url = "https://gitlab.example.com"
  token = "glrt-%[1]s"
  executor = "custom"
  limit = %[2]d
  [runners.kubernetes]
    namespace = %[3]q
    image = "job:1"
    helper_image = "helper:1"
    idle_entrypoint_image = "entrypoint:1"
    idle_count = %[4]d
    idle_time = %[5]q
    idle_images = [%[6]s]
    node_selector = {type = "kwok"}
    node_tolerations = {"kwok.x-k8s.io/node=fake" = "NoSchedule"}
`, r.Token, r.Limit, r.Namespace, r.Count, r.IdleTime, strings.Join(images, ", "))
}

// TOML is a config.toml of the runners.
func TOML(runners []Runner) string {
	entries := make([]string, len(runners))
	for i, r := range runners {
		entries[i] = r.TOML()
	}
	return strings.Join(entries, "\n")
}

// Write puts a config.toml of the runners in the place of what was there, in one step, as editors and ConfigMaps do.
func Write(path string, runners []Runner) error {
	next := filepath.Join(filepath.Dir(path), ".next-"+filepath.Base(path))
	if err := os.WriteFile(next, []byte(TOML(runners)), 0o600); err != nil {
		return err
	}
	return os.Rename(next, path)
}

// Pool is one pool of a fleet, with what a driver needs to claim from it.
type Pool struct {
	Namespace, Name string
	Runner          config.Runner
	Shape           factory.Shape
}

// Pools are the pools of a config.toml, runner by runner, in the order of their images.
func Pools(path string) ([]Pool, error) {
	c, err := config.Load([]string{path})
	if err != nil {
		return nil, err
	}
	var pools []Pool
	for _, r := range c.Runners {
		for _, image := range r.IdleImages() {
			shape, err := factory.ShapeOf(r, factory.Job{Image: image})
			if err != nil {
				return nil, err
			}
			pools = append(pools, Pool{shape.Namespace, factory.PoolName(r, shape), r, shape})
		}
	}
	return pools, nil
}
