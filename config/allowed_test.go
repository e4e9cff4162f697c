package config

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAllowsImage(t *testing.T) {
	for name, c := range map[string]struct {
		patterns []string
		image    string
		want     bool
	}{
		"no list":                                      {nil, "anything:1", true},
		"the very name":                                {[]string{"debian", "alpine:3.22"}, "alpine:3.22", true},
		"another":                                      {[]string{"debian"}, "alpine:3.22", false},
		"a name without a tag isn't one with":          {[]string{"alpine"}, "alpine:3.22", false},
		"any tag":                                      {[]string{"alpine:*"}, "alpine:3.22", true},
		"any tag isn't no tag":                         {[]string{"alpine:*"}, "alpine", false},
		"a star stays within a part":                   {[]string{"*"}, "library/alpine", false},
		"a star is a whole part":                       {[]string{"*/*:*"}, "library/alpine:3", true},
		"two stars are any number of parts":            {[]string{"registry.example.com/**"}, "registry.example.com/a/b/c:1", true},
		"two stars are no part too":                    {[]string{"**/*"}, "alpine:3", true},
		"another registry":                             {[]string{"registry.example.com/**"}, "evil.example.com/registry.example.com/a", false},
		"one of several":                               {[]string{"{alpine,debian}:*"}, "debian:13", true},
		"a class":                                      {[]string{"ruby:3.[0-4]"}, "ruby:3.5", false},
		"a pattern that is none matches nothing":       {[]string{"[alpine"}, "[alpine", false},
		"a variable is a text: a job could set it":     {[]string{"$CI_REGISTRY_IMAGE"}, "registry.example.com/a", false},
		"the table's own image":                        {[]string{"debian"}, "configured:1", true},
		"the table's own image in another spelling":    {[]string{"debian"}, "docker.io/library/configured:1", false},
		"the helper image":                             {[]string{"debian"}, "helper:1", true},
		"upper case in a tag":                          {[]string{"alpine:*"}, "alpine:RC1", true},
		"a digest":                                     {[]string{"alpine@sha256:*"}, "alpine@sha256:aa", true},
		"a newline in an image isn't hidden by a star": {[]string{"alpine"}, "alpine\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			k := Kubernetes{Image: "configured:1", HelperImage: "helper:1", AllowedImages: c.patterns}
			require.Equal(t, c.want, k.AllowsImage(c.image))
			require.True(t, k.AllowsService(c.image), "the lists are apart")
			k = Kubernetes{Image: "configured:1", HelperImage: "helper:1", AllowedServices: c.patterns}
			require.Equal(t, c.want, k.AllowsService(c.image))
			require.True(t, k.AllowsImage(c.image), "the lists are apart")
		})
	}
}

func TestAllowsUser(t *testing.T) {
	for name, c := range map[string]struct {
		allowed []string
		id      int64
		want    bool
	}{
		"no list":                    {nil, 1000, true},
		"no list, root":              {nil, 0, false},
		"on the list":                {[]string{"1", "1000"}, 1000, true},
		"not on the list":            {[]string{"1"}, 1000, false},
		"root on the list":           {[]string{"0"}, 0, true},
		"root written in three ways": {[]string{"000"}, 0, true},
		"root not on the list":       {[]string{"1000"}, 0, false},
		"a name is no number":        {[]string{"root"}, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, Kubernetes{AllowedUsers: c.allowed}.AllowsUser(c.id))
			require.Equal(t, c.want, Kubernetes{AllowedGroups: c.allowed}.AllowsGroup(c.id))
			require.Equal(t, c.id != 0, Kubernetes{AllowedGroups: c.allowed}.AllowsUser(c.id), "the lists are apart")
		})
	}
}
