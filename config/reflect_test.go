package config

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
)

// notSet lists the fields that are zero, or point to a zero ("Field=value"), in a runner that was loaded from a file with
// every key. The two container tables of which the file has one key each stand for the third, which has all.
func notSet(t *testing.T, r Runner) []string {
	var list []string
	var walk func(path string, v reflect.Value)
	walk = func(path string, v reflect.Value) {
		switch v.Kind() {
		case reflect.Struct:
			for i := range v.NumField() {
				f := v.Type().Field(i)
				if f.Name == "HelperContainerSecurityContext" || f.Name == "ServiceContainerSecurityContext" || f.Name == "IdlePolicies" || f.Name == "IdleOverrides" {
					require.False(t, v.Field(i).IsZero(), f.Name)
					continue
				}
				if f.Name == "Autoscaler" {
					continue // it can't be in force beside keys of ours; see TestTheStockAutoscalerTable
				}
				if f.Name == "LocalhostProfile" {
					continue // only with the type Localhost; checked by its own
				}
				name := f.Name
				if path != "" {
					name = path + "." + f.Name
				}
				walk(name, v.Field(i))
			}
		case reflect.Pointer:
			require.False(t, v.IsNil(), path)
			if v.Elem().IsZero() {
				list = append(list, fmt.Sprintf("%s=%v", path, v.Elem()))
			}
		default:
			require.False(t, v.IsZero(), path)
		}
	}
	walk("", reflect.ValueOf(r))
	return list
}
