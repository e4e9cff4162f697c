package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/remotecommand"

	"idlecount.dev/idlecount/e2e/cluster"
	"idlecount.dev/idlecount/e2e/images"
	"idlecount.dev/idlecount/e2e/runner"
	"idlecount.dev/idlecount/e2e/timing"
	"idlecount.dev/idlecount/factory"
)

// execsPerJob is how many bare execs are timed in each warm job's pod, while its script sleeps.
const execsPerJob = 3

// bench is what a run works with. It lives in a namespace of its own with a manager process of its own.
type bench struct {
	kubeconfig string
	namespace  string
	folder     string
	config     *rest.Config
	client     kubernetes.Interface
	images     images.References
	runner     runner.Runner
	manager    *exec.Cmd
	job        int64 // id of the last job
}

func prepare(ctx context.Context, target cluster.Target) (*bench, error) {
	b := &bench{kubeconfig: target.Kubeconfig(), job: time.Now().Unix()}
	b.namespace = "idlecount-bench-" + strconv.FormatInt(b.job, 36)
	var err error
	if b.config, err = clientcmd.BuildConfigFromFlags("", b.kubeconfig); err != nil {
		return nil, err
	}
	if b.client, err = kubernetes.NewForConfig(b.config); err != nil {
		return nil, err
	}
	set, err := images.Build(ctx, nil, images.Entrypoint, images.Helper, images.JobBash, images.JobBusybox)
	if err != nil {
		return nil, err
	}
	if b.images, err = set.Publish(ctx, target); err != nil {
		return nil, err
	}
	if b.folder, err = os.MkdirTemp("", "bench-jobstart"); err != nil {
		return nil, err
	}
	if err := b.start(ctx); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

// start makes the namespace and the configuration, and starts the manager.
func (b *bench) start(ctx context.Context) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b.namespace}}
	if _, err := b.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return err
	}
	driver, err := filepath.Abs("bin/idlecount-executor")
	if err != nil {
		return err
	}
	file := filepath.Join(b.folder, "config.toml")
	if err := os.WriteFile(file, []byte(b.configTOML(driver, file)), 0o600); err != nil {
		return err
	}
	if b.runner, err = runner.Load(file, "bench"); err != nil {
		return err
	}
	b.runner.Environ = append(os.Environ(), "KUBECONFIG="+b.kubeconfig)
	log, err := os.Create(filepath.Join(b.folder, "manager.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	b.manager = exec.Command("bin/idlecount", "run", "--kubeconfig", b.kubeconfig, "--config", file,
		"--leader-elect-namespace", b.namespace, "--listen-address", "127.0.0.1:0")
	b.manager.Stderr = log
	if err := b.manager.Start(); err != nil {
		return fmt.Errorf("start bin/idlecount: %w", err)
	}
	if err := b.waitForPool(ctx); err != nil {
		text, _ := os.ReadFile(log.Name())
		return fmt.Errorf("%w\nthe manager's log:\n%s", err, text)
	}
	return nil
}

func (b *bench) configTOML(driver, file string) string {
	return runner.Entry{
		Name: "bench", Token: "glrt-benchrun1", Driver: driver, ConfigFile: file,
		Kubernetes: fmt.Sprintf("namespace = %q\nimage = %q\nhelper_image = %q\nidle_entrypoint_image = %q\ncpu_request = \"10m\"\nidle_count = 2\n",
			b.namespace, b.images[images.JobBash], b.images[images.Helper], b.images[images.Entrypoint]),
	}.TOML()
}

// close ends the manager and removes what it made.
func (b *bench) close() {
	if b.manager != nil && b.manager.Process != nil {
		_ = b.manager.Process.Signal(syscall.SIGTERM)
		_ = b.manager.Wait()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_ = b.client.CoreV1().Namespaces().Delete(ctx, b.namespace, metav1.DeleteOptions{})
	_ = os.RemoveAll(b.folder)
}

// waitForPool waits until the pool is full and nothing else is going on, so that each job is measured on a quiet machine.
func (b *bench) waitForPool(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		pods, err := b.client.CoreV1().Pods(b.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		idle := 0
		for i := range pods.Items {
			if factory.PhaseOf(&pods.Items[i]) == factory.Idle {
				idle++
			}
		}
		if idle == 2 && len(pods.Items) == 2 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the pool in namespace %s did not fill: %d pods, %d idle", b.namespace, len(pods.Items), idle)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// measure runs warm and cold jobs in turn. The first of each is not counted: it pulls images.
func (b *bench) measure(ctx context.Context, rounds int) (figures, error) {
	var f figures
	for round := range rounds + 1 {
		warm, execs, err := b.warm(ctx)
		if err != nil {
			return f, err
		}
		cold, err := b.start1(ctx, b.images[images.JobBusybox], "cold", nil)
		if err != nil {
			return f, err
		}
		if err := b.waitForPool(ctx); err != nil {
			return f, err
		}
		if round == 0 {
			continue
		}
		f.warm, f.cold, f.exec = append(f.warm, warm), append(f.cold, cold), append(f.exec, execs...)
		fmt.Fprintf(os.Stderr, "%2d/%d  warm %4.0f ms  cold %4.0f ms  exec %3.0f ms\n", round, rounds, timing.Milliseconds(warm), timing.Milliseconds(cold), timing.Milliseconds(timing.Quantile(execs, 0.5)))
	}
	return f, nil
}

// warm runs a warm job and times bare execs in its pod while its script sleeps.
func (b *bench) warm(ctx context.Context) (start time.Duration, execs []time.Duration, err error) {
	start, err = b.start1(ctx, b.images[images.JobBash], "warm", func() error {
		// The pool's refill is over by then: the floor is measured on a quiet machine too.
		time.Sleep(2 * time.Second)
		pods, err := b.client.CoreV1().Pods(b.namespace).List(ctx, metav1.ListOptions{LabelSelector: factory.LabelJob + "=" + strconv.FormatInt(b.job, 10)})
		if err != nil {
			return err
		}
		if len(pods.Items) != 1 {
			return fmt.Errorf("job %d has %d pods", b.job, len(pods.Items))
		}
		for range execsPerJob {
			begin := time.Now()
			if err := b.bareExec(ctx, pods.Items[0].Name); err != nil {
				return err
			}
			execs = append(execs, time.Since(begin))
		}
		return nil
	})
	return start, execs, err
}

// bareExec is what no stage can be cheaper than, as long as stages are execs.
func (b *bench) bareExec(ctx context.Context, pod string) error {
	request := b.client.CoreV1().RESTClient().Get().Resource("pods").Namespace(b.namespace).Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: "build", Command: []string{"true"}, Stdout: true}, scheme.ParameterCodec)
	executor, err := remotecommand.NewWebSocketExecutor(b.config, http.MethodGet, request.URL().String())
	if err != nil {
		return err
	}
	return executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: io.Discard})
}

// start1 runs one job and returns how long its script had to wait. meanwhile runs while the script sleeps.
func (b *bench) start1(ctx context.Context, image, want string, meanwhile func() error) (time.Duration, error) {
	b.job++
	script := []string{"true"}
	if meanwhile != nil {
		script = []string{"sleep 4"}
	}
	done := make(chan error, 1)
	begun := &firstStage{stage: make(chan struct{})}
	work := b.runner
	work.Observe = begun.observe
	if meanwhile != nil {
		go func() {
			<-begun.stage
			done <- meanwhile()
		}()
	} else {
		done <- nil
	}
	result := work.Run(ctx, runner.Job{ID: b.job, Image: image, Script: script}, nil)
	if result.Status != runner.Success {
		return 0, fmt.Errorf("the %s job failed: %w\n%s", want, result.Err, result.Log)
	}
	if err := <-done; err != nil {
		return 0, err
	}
	if !slices.Contains(strings.Fields(string(result.Output("prepare"))), want) {
		return 0, fmt.Errorf("a job that should have been %s was not:\n%s", want, result.Log)
	}
	first, _ := result.Call("config")
	build, ok := result.Call("build_script")
	if !ok || build.First.IsZero() {
		return 0, errors.New("the build script printed nothing")
	}
	return build.First.Sub(first.Start), nil
}

// firstStage tells when the build script was started.
type firstStage struct {
	stage chan struct{}
	told  bool
}

func (f *firstStage) observe(stage string, _ int) {
	if stage == "build_script" && !f.told {
		f.told = true
		close(f.stage)
	}
}
