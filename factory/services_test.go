package factory

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"idlecount.dev/idlecount/config"
)

func TestHostNamesOfAService(t *testing.T) {
	for image, want := range map[string][]string{
		"redis":                                     {"redis"},
		"redis:8":                                   {"redis"},
		"bitnami/redis:8":                           {"bitnami-redis"}, // "bitnami__redis" can't be a host name
		"registry.example.com/a/b":                  {"registry.example.com-a-b"},
		"registry.example.com:5000/a/b:1":           {"registry.example.com-a-b"},
		"localhost:5000/mock@sha256:0123":           {"localhost-mock"},
		"registry.example.com:5000/a:1@sha256:0123": {"registry.example.com-a"},
		"Registry.example.com/a":                    nil,
		"$CI_REGISTRY/mock":                         nil,
	} {
		names, err := hostnames(image, nil)
		require.NoError(t, err)
		require.Equal(t, want, names, image)
	}
	names, err := hostnames("redis:8", split("db, redis  cache.local\tdb"))
	require.NoError(t, err)
	require.Equal(t, []string{"redis", "db", "cache.local"}, names)
}

func TestNamesOfServiceContainers(t *testing.T) {
	r := load(t, "minimal")
	r.Kubernetes.Services = []config.Service{
		{Name: "a", Alias: "db,other"},
		{Name: "b", Alias: "db second"},   // db is taken
		{Name: "c", Alias: "build"},       // the name of the job's container
		{Name: "d", Alias: "cache.local"}, // can be a host, not a container
		{Name: "e", Alias: "svc-2"},
	}
	s := shapeOf(t, r, Job{Services: []Service{
		{Name: "f", Aliases: []string{"helper", "entrypoint"}},
		{Name: "g", Aliases: []string{"second", "third"}},
		{Name: "h"},
	}})
	var names []string
	for _, service := range s.Services {
		names = append(names, service.Name)
	}
	require.Equal(t, []string{"db", "second", "svc-0", "svc-1", "svc-2", "svc-3", "third", "svc-4"}, names)
}

func TestServicesAreSidecarsAfterTheEntrypoint(t *testing.T) {
	r := load(t, "services")
	s := shapeOf(t, r, servicesJob())
	spec := JobPod(r, s, "pod", testMeta()).Spec
	require.Len(t, spec.Containers, 2)
	require.Equal(t, InitContainer, spec.InitContainers[0].Name)
	require.Nil(t, spec.InitContainers[0].RestartPolicy)
	require.Len(t, spec.InitContainers, 6)
	for i, c := range spec.InitContainers[1:] {
		require.Equal(t, s.Services[i].Name, c.Name)
		require.Equal(t, corev1.ContainerRestartPolicyAlways, *c.RestartPolicy)
		for _, mount := range c.VolumeMounts {
			require.NotEqual(t, volumeEntrypoint, mount.Name, "a service has no business with the entrypoint")
		}
	}
}

func TestVariablesOfAJobsServiceAreInASecretOfThePod(t *testing.T) {
	r := load(t, "services")
	job := servicesJob()
	s := shapeOf(t, r, job)
	pod := JobPod(r, s, "pod", testMeta())
	text := pod.String()
	require.NotContains(t, text, "hunter2")
	require.NotContains(t, text, "POSTGRES_PASSWORD")
	pod.UID = "uid"
	secrets := Dependents(pod, s, job)
	require.Len(t, secrets, 2)

	var wanted []string
	for _, c := range pod.Spec.InitContainers {
		for _, from := range c.EnvFrom {
			require.Nil(t, from.SecretRef.Optional, "a service must not start without its variables")
			wanted = append(wanted, from.SecretRef.Name)
		}
	}
	require.Equal(t, []string{"pod-db", "pod-redis-1"}, wanted)
	for i, secret := range secrets {
		require.Equal(t, wanted[i], secret.Name)
		require.Equal(t, pod.Namespace, secret.Namespace)
		require.Equal(t, pod.UID, secret.OwnerReferences[0].UID)
	}
	require.Equal(t, map[string][]byte{"POSTGRES_PASSWORD": []byte("hunter2"), "PGDATA": []byte("/tmp/data")}, secrets[0].Data)
	require.Empty(t, Dependents(pod, shapeOf(t, r, Job{}), Job{}))
}
