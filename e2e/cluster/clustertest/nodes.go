package clustertest

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// NeedsKWOK skips a test whose pods run on KWOK nodes where the cluster has none.
func NeedsKWOK(t testing.TB, client kubernetes.Interface) {
	t.Helper()
	nodes, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{LabelSelector: "type=kwok"})
	if err != nil {
		t.Fatal(err)
	}
	if len(nodes.Items) == 0 {
		t.Skip("the cluster has no KWOK nodes; start it with: go run ./e2e/cmd/cluster up --kwok 3")
	}
}
