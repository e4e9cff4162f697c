package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"idlecount.dev/idlecount/e2e/chaos/fleet"
	"idlecount.dev/idlecount/e2e/chaos/proxy"
)

// bench is what a run works with: a namespace for the manager's pods, another one for plain creates.
type bench struct {
	size       size
	kubeconfig string
	folder     string
	config     *rest.Config
	client     kubernetes.Interface
	pools      fleet.Runner // as many pools as are to be full by now
	bare       string
	command    fleet.Command
	manager    *fleet.Process

	pods, barePods *observer
	stop           context.CancelFunc
}

func prepare(ctx context.Context, kubeconfig string, s size) (_ *bench, err error) {
	name := "idlecount-bench-" + strconv.FormatInt(time.Now().Unix(), 36)
	b := &bench{
		size: s, kubeconfig: kubeconfig, bare: name + "-bare", stop: func() {},
		pools: fleet.Runner{Token: "benchbench", Namespace: name, Count: s.perPool, IdleTime: 24 * time.Hour},
	}
	if b.config, err = clientcmd.BuildConfigFromFlags("", kubeconfig); err != nil {
		return nil, err
	}
	// As the manager speaks to the API server: without a limit of the client's own, in protobuf.
	b.config.QPS = -1
	b.config.ContentType, b.config.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json"
	if b.client, err = kubernetes.NewForConfig(b.config); err != nil {
		return nil, err
	}
	if b.folder, err = os.MkdirTemp("", "bench-pool"); err != nil {
		return nil, err
	}
	b.command = fleet.Command{
		Program: "bin/idlecount", Config: filepath.Join(b.folder, "config.toml"), Kubeconfig: kubeconfig, LeaseNamespace: name,
		ListenAddress: "127.0.0.1:0",
	}
	if err := b.namespaces(ctx); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

// namespaces makes the namespaces and begins to observe them.
func (b *bench) namespaces(ctx context.Context) error {
	nodes, err := b.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: "type=kwok"})
	if err != nil {
		return err
	}
	if len(nodes.Items) == 0 {
		return errors.New("the cluster has no KWOK nodes; start it with: go run ./e2e/cmd/cluster up --kwok 3")
	}
	observing, stop := context.WithCancel(ctx)
	b.stop = stop
	for namespace, o := range map[string]**observer{b.pools.Namespace: &b.pods, b.bare: &b.barePods} {
		object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
		if _, err := b.client.CoreV1().Namespaces().Create(ctx, object, metav1.CreateOptions{}); err != nil {
			return err
		}
		if *o, err = observe(observing, b.client, namespace); err != nil {
			return err
		}
	}
	return b.awaitServiceAccount(ctx)
}

// awaitServiceAccount waits for what no pod is admitted without.
func (b *bench) awaitServiceAccount(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		_, err := b.client.CoreV1().ServiceAccounts(b.bare).Get(ctx, "default", metav1.GetOptions{})
		if err == nil {
			_, err = b.client.CoreV1().ServiceAccounts(b.pools.Namespace).Get(ctx, "default", metav1.GetOptions{})
		}
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the service accounts: %w", err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// cleanWithin bounds how long what was made takes to go.
const cleanWithin = 5 * time.Minute

// close ends the manager and removes what it made. It returns when that is gone: whatever comes next, a machine that is busy
// with it would be measured.
func (b *bench) close() error {
	if b.manager != nil {
		b.manager.Stop()
	}
	b.stop()
	progress("removing the pods")
	ctx, cancel := context.WithTimeout(context.Background(), cleanWithin)
	defer cancel()
	var errs error
	for _, namespace := range []string{b.pools.Namespace, b.bare} {
		errs = errors.Join(errs, b.deletePods(ctx, namespace), b.client.CoreV1().Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{}))
	}
	return errors.Join(errs, os.RemoveAll(b.folder))
}

// deletePods deletes all pods of a namespace and waits until they are gone. One request for all of them would be cut off:
// the API server deletes them one by one.
func (b *bench) deletePods(ctx context.Context, namespace string) error {
	for {
		pods, err := b.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(pods.Items) == 0 {
			return nil
		}
		group, deleting := errgroup.WithContext(ctx)
		group.SetLimit(parallel)
		for _, pod := range pods.Items {
			group.Go(func() error {
				err := b.client.CoreV1().Pods(namespace).Delete(deleting, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
				if apierrors.IsNotFound(err) {
					return nil
				}
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return fmt.Errorf("delete the pods in namespace %s: %w", namespace, err)
		}
	}
}

func (b *bench) managerLog() string {
	if b.manager == nil {
		return ""
	}
	log := b.manager.Log()
	return log[max(0, len(log)-3000):]
}

// measure measures all, one after the other.
func (b *bench) measure(ctx context.Context) (figures, error) {
	f := figures{size: b.size}
	if err := b.fill(ctx, &f); err != nil {
		return f, fmt.Errorf("fill the pools: %w", err)
	}
	if err := b.refill(ctx, &f); err != nil {
		return f, fmt.Errorf("claim and refill: %w", err)
	}
	if err := b.rest(ctx, &f); err != nil {
		return f, fmt.Errorf("measure the manager at rest: %w", err)
	}
	return f, nil
}

// settle is how long the manager is given to become quiet.
const settle = 10 * time.Second

// rest measures the manager while nothing changes: first the one that has filled the pools, then another one that begins
// with full pools and speaks through a proxy that counts.
func (b *bench) rest(ctx context.Context, f *figures) error {
	progress("at rest for %s", b.size.quiet)
	if err := sleep(ctx, settle); err != nil {
		return err
	}
	before, err := b.manager.Usage()
	if err != nil {
		return err
	}
	if err := sleep(ctx, b.size.quiet); err != nil {
		return err
	}
	if f.full, err = b.manager.Usage(); err != nil {
		return err
	}
	f.cpu = f.full.CPU - before.CPU
	b.manager.Stop()

	progress("a manager that begins with full pools, through a counting proxy, for %s", b.size.quiet)
	p, err := proxy.Start(b.config, proxy.Options{})
	if err != nil {
		return err
	}
	defer p.Close()
	b.command.Kubeconfig = filepath.Join(b.folder, "proxy.kubeconfig")
	if err := p.WriteKubeconfig(b.command.Kubeconfig); err != nil {
		return err
	}
	if b.manager, err = b.command.Start(); err != nil {
		return err
	}
	if err := sleep(ctx, 2*settle); err != nil {
		return err
	}
	if !b.manager.Leads() {
		return errors.New("the second manager doesn't lead")
	}
	counted := p.Counts()
	if err := sleep(ctx, b.size.quiet); err != nil {
		return err
	}
	f.requests = p.Counts()
	for kind := range maps.Keys(counted) {
		f.requests[kind] -= counted[kind]
	}
	f.restart, err = b.manager.Usage()
	return err
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
