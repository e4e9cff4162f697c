package factory

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"idlecount.dev/idlecount/config"
)

func TestAllowed(t *testing.T) {
	r := config.Runner{Kubernetes: config.Kubernetes{
		Image: "configured:1", HelperImage: "helper:1",
		AllowedImages: []string{"alpine:*", "registry.example.com/**"}, AllowedServices: []string{"postgres:*"},
		Services: []config.Service{{Name: "redis:8"}},
	}}
	for name, c := range map[string]struct {
		job  Job
		want string // the error without its list
	}{
		"the configuration's image":          {Job{}, ""},
		"an image that matches":              {Job{Image: "alpine:3.22"}, ""},
		"an image that doesn't":              {Job{Image: "debian:13"}, `image: the runner doesn't allow the image "debian:13"; allowed_images in its configuration has:`},
		"a service that matches":             {Job{Services: []Service{{Name: "postgres:17"}}}, ""},
		"a service that is another's image":  {Job{Services: []Service{{Name: "postgres:17"}, {Name: "alpine:3"}}}, `services[1]: the runner doesn't allow the image "alpine:3"; allowed_services in its configuration has:`},
		"a service that is the helper image": {Job{Services: []Service{{Name: "helper:1"}}}, ""},
		"a service without a name":           {Job{Services: []Service{{}}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := Allowed(r, c.job)
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			_, blamed := errors.AsType[*JobError](err)
			require.True(t, blamed)
			first, list, _ := strings.Cut(err.Error(), "\n")
			require.Equal(t, c.want, first)
			require.Contains(t, []string{"- alpine:*\n- registry.example.com/**", "- postgres:*"}, list)
		})
	}
	require.NoError(t, Allowed(config.Runner{}, Job{Image: "any", Services: []Service{{Name: "any"}}}), "without lists")
}

// TestUsersThatAreNotAllowed: what isn't allowed is left out of the shape, and said; what is said is left out.
func TestUsersThatAreNotAllowed(t *testing.T) {
	for name, c := range map[string]struct {
		allowedUsers, allowedGroups []string
		user                        string
		wantUID, wantGID            *int64
		warnings                    []string
	}{
		"no lists":                      {nil, nil, "1000:1001", new(int64(1000)), new(int64(1001)), nil},
		"no lists, root":                {nil, nil, "0:0", nil, nil, []string{"user 0 is left out: the runner doesn't allow it (allowed_users: all but 0)", "group 0 is left out: the runner doesn't allow it (allowed_groups: all but 0)"}},
		"root with zeros":               {nil, nil, "000", nil, nil, []string{"user 0 is left out"}},
		"root is listed":                {[]string{"0"}, nil, "0", new(int64(0)), nil, nil},
		"another is listed":             {[]string{"1", "2"}, nil, "1000", nil, nil, []string{"user 1000 is left out: the runner doesn't allow it (allowed_users: 1, 2)"}},
		"the group alone isn't allowed": {nil, []string{"1"}, "1000:1001", new(int64(1000)), nil, []string{"group 1001 is left out"}},
		"the user alone isn't allowed":  {[]string{"1"}, nil, "1000:1001", nil, new(int64(1001)), []string{"user 1000 is left out"}},
		"a user that can't be read":     {nil, nil, "root", nil, nil, []string{`is left out: user "root"`}},
		"a job that names none":         {[]string{"1"}, []string{"1"}, "", nil, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := load(t, "minimal")
			r.Kubernetes.AllowedUsers, r.Kubernetes.AllowedGroups = c.allowedUsers, c.allowedGroups
			job := Job{User: c.user, Services: []Service{{Name: "redis:8", User: c.user}}}
			s := shapeOf(t, r, job)
			for _, security := range []Security{s.Build.Security, s.Services[len(s.Services)-1].Security} {
				require.Equal(t, c.wantUID, security.RunAsUser)
				require.Equal(t, c.wantGID, security.RunAsGroup)
			}
			warnings := Warnings(r, job)
			require.Len(t, warnings, 2*len(c.warnings))
			for i, want := range c.warnings {
				require.Contains(t, warnings[i], "image:kubernetes:user")
				require.Contains(t, warnings[i], want)
				require.Contains(t, warnings[len(c.warnings)+i], "services[0]:kubernetes:user")
				require.Contains(t, warnings[len(c.warnings)+i], want)
			}

			// What the configuration says comes first, and then nothing is left out.
			r.Kubernetes.PodSecurityContext.RunAsUser, r.Kubernetes.PodSecurityContext.RunAsGroup = new(int64(0)), new(int64(0))
			if !strings.Contains(c.user, "root") {
				require.Empty(t, Warnings(r, job))
			}
		})
	}
}

// TestAJobAndThePoolOfItsImageAgree: whatever an idle_image changes, the manager's shape of the image is that of a job.
func TestAJobAndThePoolOfItsImageAgree(t *testing.T) {
	r := load(t, "minimal")
	plain := shapeOf(t, r, Job{Image: "golang:1.26"})
	r.Kubernetes.IdleOverrides = []config.IdleImage{{
		Image: "golang:1.26", CPURequest: new("2"), MemoryLimit: new(""), HelperCPULimit: new("1"), Services: []config.Service{{Name: "postgres:17"}},
	}, {Image: r.Kubernetes.Image, CPURequest: new("3")}}

	s := shapeOf(t, r, Job{Image: "golang:1.26"})
	require.Equal(t, "2", s.Build.Resources.Requests.CPU)
	require.Empty(t, s.Build.Resources.Limits.Memory)
	require.Equal(t, "1", s.Helper.Resources.Limits.CPU)
	require.Len(t, s.Services, 1)
	require.NotEqual(t, plain.Hash(), s.Hash())
	require.Equal(t, Difference{Resources: true, Services: true}, Differs(plain, s))

	require.Equal(t, "3", shapeOf(t, r, Job{}).Build.Resources.Requests.CPU, "a job that names no image has that of the table")
	require.Equal(t, shapeOf(t, r, Job{Image: r.Kubernetes.Image}).Hash(), shapeOf(t, r, Job{}).Hash())
	require.Equal(t, s.Hash(), shapeOf(t, r.ForImage("golang:1.26"), Job{Image: "golang:1.26"}).Hash(), "to apply it twice is to apply it once")
}
