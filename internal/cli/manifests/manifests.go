// Package manifests makes the YAML that puts a manager into a cluster: service accounts and their least rights, each with
// what needs it, the priority class of pause pods, the configuration and the Deployment. It is pure and knows no rights by
// itself: the packages that use them say which they need.
package manifests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"idlecount.dev/idlecount/factory"
)

// Options are what differs from one cluster to the next.
type Options struct {
	Namespace        string // of the manager
	Image            string // of the manager
	RunnerNamespaces []string
	DriverNamespaces []string // those of them in which GitLab Runner calls the driver, which is not where it keeps its own executor
	// Driver is the service account with which GitLab Runner runs the driver; it is made here where MakeDriver is set and
	// the driver is called at all.
	Driver     types.NamespacedName
	MakeDriver bool
	// Config are the files of the Secret, see ManagerConfig; none leaves the Secret out.
	Config [][]byte
	Rights Rights
}

// Rights are what the manager and the driver may do.
type Rights struct {
	Manager []Right // in each namespace of runners
	Cluster []Right // of the manager, in the whole cluster; none where no runner keeps pause pods
	Lease   []Right // in the manager's namespace
	Driver  []Right // in each namespace in which the driver is called
}

// Right is some verbs on one resource, and what for.
type Right struct {
	Group    string // API group, "" = core
	Resource string // with its subresource, e.g. "pods/exec"
	Verbs    []string
	Why      string
}

// Names of the objects.
const (
	Name          = "idlecount"
	LeaseName     = "idlecount-lease"
	DriverName    = "idlecount-executor"
	SecretName    = "idlecount-config"
	PausePriority = factory.PausePriorityClass
)

// owned is the name of an object that stands outside the manager's namespace, where those of another installation may be too:
// it says whose it is. That in the default namespace has the plain name.
func owned(name, namespace string) string {
	if namespace == Name {
		return name
	}
	return name + "-" + namespace
}

// Ambiguous says whether the objects of a manager in a namespace could have the names of others, with another meaning:
// idlecount-executor is that of the driver, and of whose manager is in namespace executor.
func Ambiguous(namespace string) bool {
	for _, name := range []string{DriverName, LeaseName, PausePriority} {
		if own := owned(Name, namespace); own == name || strings.HasPrefix(own, name+"-") {
			return true
		}
	}
	return false
}

// document is one object of the output, with what is said above it. Roles are text, since comments belong into them.
type document struct {
	comment string
	object  runtime.Object
	text    string
}

// Render makes the YAML, valid for `kubectl apply -f -`.
func Render(o Options) ([]byte, error) {
	var b bytes.Buffer
	for i, d := range documents(o) {
		if i > 0 {
			b.WriteString("---\n")
		}
		for line := range strings.Lines(d.comment) {
			b.WriteString(strings.TrimRight("# "+line, " \n") + "\n")
		}
		if d.object == nil {
			b.WriteString(d.text)
			continue
		}
		body, err := encode(d.object)
		if err != nil {
			return nil, err
		}
		b.Write(body)
	}
	return b.Bytes(), nil
}

func documents(o Options) []document {
	docs := accounts(o)
	docs = append(docs, roles(o)...)
	docs = append(docs, pausePriority())
	if len(o.Config) > 0 {
		docs = append(docs, configuration(o))
	}
	return append(docs, manager(o))
}

// encode writes an object without what only the server fills in.
func encode(object runtime.Object) ([]byte, error) {
	j, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", object, err)
	}
	var fields map[string]any
	if err := json.Unmarshal(j, &fields); err != nil {
		return nil, fmt.Errorf("encode %T: %w", object, err)
	}
	delete(fields, "status")
	return yaml.Marshal(fields)
}

func labels(component string) map[string]string {
	return map[string]string{"app.kubernetes.io/name": Name, "app.kubernetes.io/component": component}
}
