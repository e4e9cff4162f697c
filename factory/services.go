package factory

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/entrypoint/wire"
)

// ShapeService is a service as it runs in the pod, beside build and helper.
type ShapeService struct {
	Name       string            `json:"name"` // of the container
	Image      string            `json:"image"`
	PullPolicy corev1.PullPolicy `json:"pull_policy"`
	Hostnames  []string          `json:"hostnames,omitempty"` // what the job calls it; all are 127.0.0.1
	Entrypoint []string          `json:"entrypoint,omitempty"`
	Command    []string          `json:"command,omitempty"`
	Env        []Variable        `json:"env,omitempty"`        // of the configuration, in its order
	SecretEnv  []string          `json:"secret_env,omitempty"` // names of those of the job, sorted
	Resources  Resources         `json:"resources,omitzero"`
	Security   Security          `json:"security,omitzero"`
}

// Variable is one variable of a service.
type Variable struct {
	Name  string `json:"name"`
	Value string `json:"value,omitempty"`
}

// services resolves those of the configuration, then those of the job. A service without a name is skipped, as with GitLab.
func (b shapeBuilder) services(job Job, template ShapeService) ([]ShapeService, error) {
	taken := map[string]bool{InitContainer: true, string(wire.Build): true, string(wire.Helper): true}
	var all []ShapeService
	add := func(s ShapeService, aliases []string) error {
		names, err := hostnames(s.Image, aliases)
		if err != nil {
			return err
		}
		s.Hostnames = names
		s.Name = containerName(aliases, taken)
		all = append(all, s)
		return nil
	}
	for i, c := range b.k.Services {
		if c.Name == "" {
			continue
		}
		path := fmt.Sprintf("%s.services[%d]", b.path, i)
		s, err := b.configured(path, c, template)
		if err != nil {
			return nil, err
		}
		if err := add(s, split(c.Alias)); err != nil {
			return nil, fmt.Errorf("%s.alias: %w", path, err)
		}
	}
	for i, j := range job.Services {
		if j.Name == "" {
			continue
		}
		s, err := b.asked(j, template)
		if err != nil {
			return nil, err
		}
		if err := add(s, split(j.Aliases...)); err != nil {
			return nil, &JobError{Field: fmt.Sprintf("services[%d].alias", i), Message: err.Error()}
		}
	}
	return all, nil
}

// configured is a service of [[runners.kubernetes.services]].
func (b shapeBuilder) configured(path string, c config.Service, s ShapeService) (ShapeService, error) {
	var err error
	if err = noVariables(path+".name", c.Name); err != nil {
		return ShapeService{}, err
	}
	s.Image, s.Entrypoint, s.Command = c.Name, slices.Clone(c.Entrypoint), slices.Clone(c.Command)
	if s.PullPolicy, err = b.pulling.policy(c.Name, nil); err != nil {
		return ShapeService{}, err
	}
	for i, text := range c.Environment {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return ShapeService{}, fmt.Errorf("%s.environment[%d]: %q is not NAME=value", path, i, text)
		}
		s.Env = append(s.Env, Variable{name, value})
	}
	return s, nil
}

// asked is a service that the job brings.
func (b shapeBuilder) asked(j Service, s ShapeService) (ShapeService, error) {
	var err error
	s.Image, s.Entrypoint, s.Command = j.Name, slices.Clone(j.Entrypoint), slices.Clone(j.Command)
	if s.PullPolicy, err = b.pulling.policy(j.Name, j.PullPolicy); err != nil {
		return ShapeService{}, err
	}
	s.SecretEnv = slices.Sorted(maps.Keys(secretData(j.Variables)))
	s.Security = s.Security.withUser(j.User, b.pod, b.k)
	return s, nil
}

// secretData are the variables that can be keys of a Secret; the API refuses others.
func secretData(variables map[string]string) map[string][]byte {
	data := map[string][]byte{}
	for name, value := range variables {
		if len(validation.IsConfigMapKey(name)) == 0 && len(validation.IsEnvVarName(name)) == 0 {
			data[name] = []byte(value)
		}
	}
	return data
}

// hostnames are the names by which a job reaches a service: what GitLab derives from its image (without registry port,
// tag and digest, "/" written as "__" and as "-"), then its aliases. A derived name that can't be a host name is left out,
// an alias that can't be one is the user's mistake.
func hostnames(image string, aliases []string) ([]string, error) {
	ref := parseReference(image)
	registry, path, qualified := strings.Cut(ref.name, "/")
	if qualified {
		registry, _, _ = strings.Cut(registry, ":")
		path = "/" + path
	}
	var names []string
	for _, slash := range []string{"__", "-"} {
		name := strings.ReplaceAll(registry+path, "/", slash)
		if len(validation.IsDNS1123Subdomain(name)) == 0 && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, alias := range aliases {
		if problems := validation.IsDNS1123Subdomain(alias); len(problems) > 0 {
			return nil, fmt.Errorf("%q can't be a host name: %s", alias, strings.Join(problems, ", "))
		}
		if !slices.Contains(names, alias) {
			names = append(names, alias)
		}
	}
	return names, nil
}

// containerName is the first alias that can be a container's name and is free, else svc-0, svc-1 …
func containerName(aliases []string, taken map[string]bool) string {
	for _, alias := range aliases {
		if !taken[alias] && len(validation.IsDNS1123Label(alias)) == 0 {
			taken[alias] = true
			return alias
		}
	}
	for n := 0; ; n++ {
		if name := "svc-" + strconv.Itoa(n); !taken[name] {
			taken[name] = true
			return name
		}
	}
}

// split splits aliases as GitLab does: at commas and blanks.
func split(aliases ...string) []string {
	return strings.FieldsFunc(strings.Join(aliases, ","), func(c rune) bool {
		return c == ',' || c == ' ' || c == '\t' || c == '\n' || c == '\r'
	})
}
