package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"idlecount.dev/idlecount/e2e/cluster"
	"idlecount.dev/idlecount/internal/cli/manifests"
)

// apply does what `kubectl apply --server-side` does, so that the demo doesn't need kubectl, and returns kind/name of each.
func apply(ctx context.Context, kubeconfig string, yaml []byte) ([]string, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(typed.Discovery()))
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(yaml), 4096)
	var applied []string
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); errors.Is(err, io.EOF) {
			return applied, nil
		} else if err != nil {
			return applied, fmt.Errorf("read the manifests: %w", err)
		}
		if len(object.Object) == 0 {
			continue
		}
		kind := object.GroupVersionKind()
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			return applied, err
		}
		var resource dynamic.ResourceInterface = client.Resource(mapping.Resource)
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			resource = client.Resource(mapping.Resource).Namespace(object.GetNamespace())
		}
		if _, err := resource.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: "idlecount-demo", Force: true}); err != nil {
			return applied, fmt.Errorf("apply %s %s: %w", kind.Kind, object.GetName(), err)
		}
		applied = append(applied, strings.ToLower(kind.Kind)+"/"+object.GetName())
	}
}

func ensureNamespace(ctx context.Context, client kubernetes.Interface, name string) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	return poll(ctx, 2*time.Minute, func(ctx context.Context) (bool, error) {
		_, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
		if err == nil {
			return true, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return false, err
		}
		have, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		// One that a demo-down just before began to delete has to go first.
		return err == nil && have.DeletionTimestamp == nil, nil
	}, "namespace "+name+" exists")
}

func waitForDeployment(ctx context.Context, client kubernetes.Interface, namespace, name string) error {
	err := poll(ctx, 3*time.Minute, func(ctx context.Context) (bool, error) {
		d, err := client.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		done := d.Status.ObservedGeneration >= d.Generation && d.Status.UpdatedReplicas == *d.Spec.Replicas &&
			d.Status.Replicas == d.Status.UpdatedReplicas && d.Status.AvailableReplicas == d.Status.UpdatedReplicas
		return done, nil
	}, "Deployment "+namespace+"/"+name+" is available")
	if err != nil {
		return fmt.Errorf("%w\nlook at: kubectl -n %s describe pods", err, namespace)
	}
	fmt.Printf("Deployment %s/%s is available\n", namespace, name)
	return nil
}

// writeDriverKubeconfig writes a kubeconfig for the driver's service account, with a token for some hours.
func writeDriverKubeconfig(ctx context.Context, client kubernetes.Interface, from, to string) error {
	const lifetime = 12 * 60 * 60 // seconds
	token, err := client.CoreV1().ServiceAccounts(managerNamespace).CreateToken(ctx, manifests.DriverName,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(lifetime))}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("a token for the driver's service account: %w", err)
	}
	config, err := clientcmd.LoadFromFile(from)
	if err != nil {
		return err
	}
	if err := clientcmdapi.FlattenConfig(config); err != nil {
		return err
	}
	current := config.Contexts[config.CurrentContext]
	config.AuthInfos = map[string]*clientcmdapi.AuthInfo{manifests.DriverName: {Token: token.Status.Token}}
	config.Contexts = map[string]*clientcmdapi.Context{"driver": {Cluster: current.Cluster, AuthInfo: manifests.DriverName, Namespace: jobsNamespace}}
	config.CurrentContext = "driver"
	return clientcmd.WriteToFile(*config, to)
}

// settle waits until only the pool's own pods are left.
func (d *demo) settle(ctx context.Context) error {
	return poll(ctx, time.Minute, func(ctx context.Context) (bool, error) {
		pods, err := d.client.CoreV1().Pods(jobsNamespace).List(ctx, metav1.ListOptions{})
		return err == nil && len(pods.Items) == idlePods, err
	}, "only the pool's pods are left")
}

// counts are a pool's numbers.
type counts struct{ Want, Idle, Warming, Claimed, Failed int }

// status runs `idlecount status` and returns what it shows a user, and its numbers.
func (d *demo) status(ctx context.Context) (table string, pools []counts, err error) {
	args := []string{"--kubeconfig", d.target.Kubeconfig(), "status", "-n", jobsNamespace}
	out, err := exec.CommandContext(ctx, "bin/idlecount", args...).Output()
	if err != nil {
		return "", nil, commandError("bin/idlecount status", err)
	}
	data, err := exec.CommandContext(ctx, "bin/idlecount", append(args, "-o", "json")...).Output()
	if err != nil {
		return "", nil, commandError("bin/idlecount status -o json", err)
	}
	var list struct{ Pools []counts }
	if err := json.Unmarshal(data, &list); err != nil {
		return "", nil, fmt.Errorf("read the output of bin/idlecount status -o json: %w", err)
	}
	return string(out), list.Pools, nil
}

// commandError is a failed command with what it said.
func commandError(command string, err error) error {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && len(exit.Stderr) > 0 {
		return fmt.Errorf("%s: %w: %s", command, err, bytes.TrimSpace(exit.Stderr))
	}
	return fmt.Errorf("%s: %w", command, err)
}

// full says whether each pool has the idle pods that it wants, and nothing else is going on.
func full(pools []counts) bool {
	for _, p := range pools {
		if p.Want == 0 || p != (counts{Want: p.Want, Idle: p.Want}) {
			return false
		}
	}
	return len(pools) > 0
}

// down removes what the demo made: a cluster of ours as a whole, from another one only our namespaces and objects.
func down(ctx context.Context, options cluster.TargetOptions) error {
	if options.Kind == cluster.KindExisting {
		return removeFromExisting(ctx, options.Kubeconfig)
	}
	if options.Kind != cluster.KindKind {
		if err := cluster.Down(ctx, cluster.Options{Progress: os.Stderr}); err != nil {
			return err
		}
	}
	if options.Kind != cluster.KindLocal {
		if _, err := cluster.RemoveKind(ctx, os.Stderr); err != nil {
			return err
		}
	}
	return os.RemoveAll(folder)
}

func removeFromExisting(ctx context.Context, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	for _, name := range []string{managerNamespace, jobsNamespace} {
		if err := client.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	if err := client.SchedulingV1().PriorityClasses().Delete(ctx, manifests.PausePriority, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	fmt.Fprintf(os.Stderr, "namespaces %s and %s and PriorityClass %s are being removed\n", managerNamespace, jobsNamespace, manifests.PausePriority)
	return os.RemoveAll(folder)
}

// command runs a command as the user would type it, with its output as it comes.
func (d *demo) command(ctx context.Context, name string, args ...string) error {
	fmt.Printf("$ %s %s\n", name, strings.Join(args, " "))
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stdout
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// poll asks until the answer is yes; what says what the answer is about, for the error of a wait that was too long.
func poll(ctx context.Context, within time.Duration, ask func(context.Context) (bool, error), what string) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		done, err := ask(ctx)
		if done || (err != nil && ctx.Err() == nil) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited %s until %s: %w", within, what, context.Cause(ctx))
		case <-ticker.C:
		}
	}
}

func indent(text string) string {
	if text == "" {
		return ""
	}
	return "  " + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n  ") + "\n"
}
