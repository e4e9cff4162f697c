// Package watches is what the informers of pools and of capacities have in common.
package watches

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"
)

// ByLabel indexes objects by the value of a label; those without one aren't in the index.
func ByLabel(label string) cache.IndexFunc {
	return func(obj any) ([]string, error) {
		accessor, err := meta.Accessor(obj)
		if err != nil {
			return nil, err
		}
		if value := accessor.GetLabels()[label]; value != "" {
			return []string{value}, nil
		}
		return nil, nil
	}
}
