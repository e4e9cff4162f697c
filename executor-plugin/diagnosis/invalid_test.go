package diagnosis

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"idlecount.dev/idlecount/factory"
)

func TestAskedInVain(t *testing.T) {
	refused := func(paths ...string) error {
		var list field.ErrorList
		for _, path := range paths {
			list = append(list, field.Invalid(field.NewPath(path), "x", "must not have leading or trailing whitespace"))
		}
		return fmt.Errorf("create: %w", apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "p", list))
	}
	all := factory.Job{Image: " a", User: "99999999999", Services: []factory.Service{{Name: "b"}, {}, {Name: " c", User: "99999999999"}}}
	for sentence, test := range map[string]struct {
		err  error
		job  factory.Job
		want bool
	}{
		"the job's image":                        {refused("spec.containers[0].image"), all, true},
		"the runner's image":                     {refused("spec.containers[0].image"), factory.Job{}, false},
		"the job's user":                         {refused("spec.containers[0].securityContext.runAsUser"), all, true},
		"the runner's user":                      {refused("spec.containers[0].securityContext.runAsUser"), factory.Job{Image: "a"}, false},
		"the job's second service":               {refused("spec.initContainers[3].image", "spec.initContainers[3].securityContext.runAsUser"), all, true},
		"the user of a service that names none":  {refused("spec.initContainers[2].securityContext.runAsUser"), all, false},
		"the runner's service":                   {refused("spec.initContainers[1].image"), all, false},
		"the helper's image":                     {refused("spec.containers[1].image"), all, false},
		"the job's image and the runner's label": {refused("spec.containers[0].image", "metadata.labels"), all, false},
		"no word of a field":                     {refused(), all, false},
		"forbidden":                              {apierrors.NewForbidden(schema.GroupResource{}, "p", errors.New("spec.containers[0].image")), all, false},
	} {
		t.Run(sentence, func(t *testing.T) { require.Equal(t, test.want, AskedInVain(test.err, test.job, 3)) })
	}
}
