package diagnosis

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func mustParse(q string) resource.Quantity { return resource.MustParse(q) }

func TestQuotaRefusal(t *testing.T) {
	refuse := func(words string) error {
		return fmt.Errorf("create: %w", apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "p", errors.New(words)))
	}
	for sentence, test := range map[string]struct {
		err       error
		final, ok bool
	}{
		"used up":                        {refuse("exceeded quota: q, requested: pods=1, used: pods=3, limited: pods=3"), false, true},
		"used up, of two":                {refuse("exceeded quota: q, requested: limits.cpu=500m,limits.memory=1Gi, used: limits.cpu=2,limits.memory=4Gi, limited: limits.cpu=2,limits.memory=4Gi"), false, true},
		"more than there is":             {refuse("exceeded quota: q, requested: requests.cpu=3, used: requests.cpu=0, limited: requests.cpu=2"), true, true},
		"more than there is, of two":     {refuse("exceeded quota: q, requested: limits.cpu=1,limits.memory=8Gi, used: limits.cpu=0,limits.memory=0, limited: limits.cpu=2,limits.memory=4Gi"), true, true},
		"as much as there is":            {refuse("exceeded quota: q, requested: requests.cpu=2, used: requests.cpu=1, limited: requests.cpu=2"), false, true},
		"something must be specified":    {refuse("failed quota: q: must specify limits.cpu for: build"), false, false},
		"RBAC":                           {refuse(`User "x" cannot create resource "pods" in API group "" in the namespace "ci"`), false, false},
		"an error of another kind":       {apierrors.NewInternalError(errors.New("exceeded quota: q, requested: pods=2, limited: pods=1")), false, false},
		"words that can't be understood": {refuse("exceeded quota: everything"), false, true},
	} {
		t.Run(sentence, func(t *testing.T) {
			q, ok := QuotaRefusal(test.err)
			require.Equal(t, test.ok, ok)
			require.Equal(t, test.final, q.Final)
		})
	}
	q, _ := QuotaRefusal(refuse("exceeded quota: q, requested: pods=1,requests.cpu=700m, used: pods=3,requests.cpu=1800m, limited: pods=4,requests.cpu=2"))
	require.Equal(t, "q", q.Name)
	require.Len(t, q.Short, 1, "of pods there is one left")
	require.True(t, q.Short["requests.cpu"].Equal(mustParse("500m")))
	require.True(t, q.Used["requests.cpu"].Equal(mustParse("1800m")))
}
