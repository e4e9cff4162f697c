package diagnosis

import (
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
)

// QuotaRefusal reads the API server's refusal of a pod for a ResourceQuota. ok is false for any other error; final is
// true where the pod asks for more than the quota has in all, so that nothing is gained by waiting for others to end.
func QuotaRefusal(err error) (final, ok bool) {
	if !apierrors.IsForbidden(err) {
		return false, false
	}
	_, words, found := strings.Cut(err.Error(), "exceeded quota: ")
	if !found {
		return false, false
	}
	// "NAME, requested: A=1,B=2, used: A=3,B=4, limited: A=3,B=5" is all that the API server says.
	requested := quantities(words, "requested: ")
	for name, limit := range quantities(words, "limited: ") {
		if want, ok := requested[name]; ok && want.Cmp(limit) > 0 {
			return true, true
		}
	}
	return false, true
}

func quantities(words, label string) map[string]resource.Quantity {
	_, list, _ := strings.Cut(words, label)
	list, _, _ = strings.Cut(list, ": ") // the next label stands in the last item, which then doesn't parse
	found := map[string]resource.Quantity{}
	for item := range strings.SplitSeq(list, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(item), "=")
		if q, err := resource.ParseQuantity(value); err == nil {
			found[name] = q
		}
	}
	return found
}
