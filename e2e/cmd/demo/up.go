package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"idlecount.dev/idlecount/e2e/cluster"
	"idlecount.dev/idlecount/e2e/images"
	"idlecount.dev/idlecount/e2e/runner"
	"idlecount.dev/idlecount/e2e/timing"
)

// Where the demo keeps its things.
const (
	managerNamespace = "idlecount"
	jobsNamespace    = "idlecount-demo"
	folder           = "bin/demo" // config.toml, the driver's kubeconfig, the manifests
	idlePods         = 2
)

// demo is what its steps hand on.
type demo struct {
	target  cluster.Target
	client  kubernetes.Interface
	images  images.References
	config  string // path of config.toml
	started time.Time
}

// up is the story from an empty machine to a job in a warm pod.
func up(ctx context.Context, options cluster.TargetOptions) error {
	d := demo{config: filepath.Join(folder, "config.toml"), started: time.Now()}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	for _, step := range []struct {
		title string
		do    func(context.Context) error
	}{
		{"A cluster", func(ctx context.Context) error { return d.cluster(ctx, options) }},
		{"Images, and a config.toml with a pool", d.configure},
		{"The manager, from its own manifests", d.install},
		{"The pool fills", d.fill},
		{"The same job twice: cold, then warm", d.jobs},
	} {
		fmt.Printf("\n== %s\n", step.title)
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", strings.ToLower(step.title), err)
		}
	}
	d.next(options)
	return nil
}

func (d *demo) cluster(ctx context.Context, options cluster.TargetOptions) error {
	target, err := cluster.Open(ctx, options)
	if err != nil {
		return err
	}
	d.target = target
	config, err := clientcmd.BuildConfigFromFlags("", target.Kubeconfig())
	if err != nil {
		return err
	}
	d.client, err = kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	version, err := d.client.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("ask the API server at %s for its version: %w", config.Host, err)
	}
	fmt.Printf("Kubernetes %s: %s\n", version.GitVersion, target.Description())
	return nil
}

// configure publishes the images and writes the config.toml that a user would write.
func (d *demo) configure(ctx context.Context) error {
	set, err := images.Build(ctx, nil, images.Idlecount, images.Entrypoint, images.Helper, images.JobBash, images.JobBusybox)
	if err != nil {
		return err
	}
	if d.images, err = set.Publish(ctx, d.target); err != nil {
		return err
	}
	binary, err := filepath.Abs("bin/idlecount-executor")
	if err != nil {
		return err
	}
	configFile, err := filepath.Abs(d.config)
	if err != nil {
		return err
	}
	text := configTOML(binary, configFile, d.images)
	if err := os.WriteFile(d.config, []byte(text), 0o600); err != nil {
		return err
	}
	fmt.Printf("%s:\n", d.config)
	fmt.Print(indent(text))
	return d.command(ctx, "bin/idlecount", "validate", "--config", d.config)
}

// configTOML is a runner with a pool of one image; the other image of the demo isn't in it.
func configTOML(driver, configFile string, refs images.References) string {
	return runner.Entry{
		Name: "demo", Token: "glrt-demorunner", Driver: driver, ConfigFile: configFile,
		Kubernetes: fmt.Sprintf(`namespace = %q
image = %q
helper_image = %q
idle_entrypoint_image = %q
cpu_request = "50m"
idle_count = %d      # idle pods per image
idle_time = "30m"   # an idle pod ends itself after this
`, jobsNamespace, refs[images.JobBash], refs[images.Helper], refs[images.Entrypoint], idlePods),
	}.TOML()
}

// install applies the manifests that `idlecount manifests` prints, and waits for the manager.
func (d *demo) install(ctx context.Context) error {
	for _, namespace := range []string{managerNamespace, jobsNamespace} {
		if err := ensureNamespace(ctx, d.client, namespace); err != nil {
			return err
		}
	}
	args := []string{"manifests", "--config", d.config, "--image", d.images[images.Idlecount]}
	fmt.Printf("$ bin/idlecount %s   # and what kubectl apply would do, without needing kubectl\n", strings.Join(args, " "))
	yaml, err := exec.CommandContext(ctx, "bin/idlecount", args...).Output()
	if err != nil {
		return commandError("bin/idlecount manifests", err)
	}
	objects, err := apply(ctx, d.target.Kubeconfig(), yaml)
	if err != nil {
		return err
	}
	for _, object := range objects {
		fmt.Printf("  %s\n", object)
	}
	if err := waitForDeployment(ctx, d.client, managerNamespace, "idlecount"); err != nil {
		return err
	}
	// The driver gets the rights of its own account and no more, as it would beside a GitLab Runner.
	return writeDriverKubeconfig(ctx, d.client, d.target.Kubeconfig(), driverKubeconfig())
}

func driverKubeconfig() string { return filepath.Join(folder, "driver.kubeconfig") }

// fill shows the pool, whenever its numbers change, until it has its idle pods.
func (d *demo) fill(ctx context.Context) error {
	var last []counts
	return poll(ctx, 3*time.Minute, func(ctx context.Context) (bool, error) {
		table, pools, err := d.status(ctx)
		if err != nil {
			return false, err
		}
		if !slices.Equal(pools, last) {
			fmt.Print(indent(table))
			last = pools
		}
		return full(pools), nil
	}, "the pool has its idle pods")
}

// jobs runs a job whose image isn't in the pool, then one whose image is, and compares them.
func (d *demo) jobs(ctx context.Context) error {
	work, err := runner.Load(d.config, "demo")
	if err != nil {
		return err
	}
	kubeconfig, err := filepath.Abs(driverKubeconfig())
	if err != nil {
		return err
	}
	work.Environ = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	id := time.Now().Unix()

	fmt.Printf("-- cold: %s is in no pool, a pod is made for the job\n", d.images[images.JobBusybox])
	cold, err := d.job(ctx, work, id, d.images[images.JobBusybox], nil)
	if err != nil {
		return err
	}
	// The second job begins on a machine as quiet as the first one's: the pod of that is gone.
	if err := d.settle(ctx); err != nil {
		return err
	}
	fmt.Printf("-- warm: %s has idle pods\n", d.images[images.JobBash])
	warm, err := d.job(ctx, work, id+1, d.images[images.JobBash], func() error {
		fmt.Println("-- while it runs: one pod claimed, its replacement on the way")
		out, _, err := d.status(ctx)
		fmt.Print(indent(out))
		return err
	})
	if err != nil {
		return err
	}
	fmt.Println("-- and after it: the pool is full again, the used pod is gone")
	if err := d.fill(ctx); err != nil {
		return err
	}
	fmt.Printf("\nfrom the driver's first call to the script's first line:\n  cold %5.0f ms\n  warm %5.0f ms   %.1f times faster\n",
		timing.Milliseconds(cold), timing.Milliseconds(warm), cold.Seconds()/warm.Seconds())
	return nil
}

// job runs one job and returns the time from the driver's first call to the first byte of the script's output.
// meanwhile is called once the script has begun.
func (d *demo) job(ctx context.Context, work runner.Runner, id int64, image string, meanwhile func() error) (time.Duration, error) {
	job := runner.Job{ID: id, Name: "hello", Image: image, Script: []string{
		`echo "hello from $(hostname)"`,
		"sleep 2",
		"echo done",
	}}
	begun := make(chan struct{})
	var interlude error
	if meanwhile != nil {
		go func() {
			<-begun
			interlude = meanwhile()
		}()
	}
	log := &watchedLog{marker: []byte("hello from"), seen: begun}
	result := work.Run(ctx, job, log)
	fmt.Print(indent(string(result.Log)))
	if result.Status != runner.Success {
		return 0, fmt.Errorf("job %d: %s, %s: %w", id, result.Status, result.FailureReason, result.Err)
	}
	if interlude != nil {
		return 0, interlude
	}
	first, _ := result.Call("config")
	script, _ := result.Call("build_script")
	return script.First.Sub(first.Start), nil
}

// watchedLog closes seen when marker has come.
type watchedLog struct {
	marker []byte
	text   []byte
	seen   chan struct{}
	closed bool
}

func (w *watchedLog) Write(p []byte) (int, error) {
	w.text = append(w.text, p...)
	if !w.closed && bytes.Contains(w.text, w.marker) {
		w.closed = true
		close(w.seen)
	}
	return len(p), nil
}

// next says what to try.
func (d *demo) next(options cluster.TargetOptions) {
	down := "make demo-down"
	if options.Kind != "" {
		down += " CLUSTER=" + options.Kind
	}
	fmt.Printf(`
== Done in %s. Try next
  export KUBECONFIG=%s
  bin/idlecount status -n %s -o wide
  bin/idlecount status -n %s --pods
  bin/idlecount schedule --config %s
  go run ./e2e/cmd/runjob --config %s --script 'echo hi; hostname'
  go run ./e2e/cmd/runjob --config %s --image %s --script 'echo hi'   # cold: in no pool
  %-40s # removes everything again
`, time.Since(d.started).Round(time.Second), d.target.Kubeconfig(), jobsNamespace, jobsNamespace, d.config, d.config, d.config, d.images[images.JobBusybox], down)
}
