package diagnosis

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Quota is a ResourceQuota that refuses a pod.
type Quota struct {
	Name  string
	Final bool                // the pod asks for more than the quota has in all: nothing is gained by waiting for others to end
	Used  corev1.ResourceList // of those that are short
	Short corev1.ResourceList // by how much each is too little for the pod; empty where the words can't be understood
}

// QuotaRefusal reads the API server's refusal of a pod for a ResourceQuota. ok is false for any other error.
func QuotaRefusal(err error) (q Quota, ok bool) {
	if !apierrors.IsForbidden(err) {
		return Quota{}, false
	}
	_, words, found := strings.Cut(err.Error(), "exceeded quota: ")
	if !found {
		return Quota{}, false
	}
	// "NAME, requested: A=1,B=2, used: A=3,B=4, limited: A=3,B=5" is all that the API server says.
	q = Quota{Used: corev1.ResourceList{}, Short: corev1.ResourceList{}}
	q.Name, _, _ = strings.Cut(words, ",")
	requested, used := quantities(words, "requested: "), quantities(words, "used: ")
	for name, limit := range quantities(words, "limited: ") {
		want, ok := requested[name]
		if !ok {
			continue
		}
		q.Final = q.Final || want.Cmp(limit) > 0
		want.Add(used[name])
		if want.Sub(limit); want.Sign() > 0 {
			q.Used[name], q.Short[name] = used[name], want
		}
	}
	return q, true
}

func quantities(words, label string) corev1.ResourceList {
	_, list, _ := strings.Cut(words, label)
	list, _, _ = strings.Cut(list, ": ") // the next label stands in the last item, which then doesn't parse
	found := corev1.ResourceList{}
	for item := range strings.SplitSeq(list, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(item), "=")
		if q, err := resource.ParseQuantity(value); err == nil {
			found[corev1.ResourceName(name)] = q
		}
	}
	return found
}
