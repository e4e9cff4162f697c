package claim_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"idlecount.dev/idlecount/config"
	"idlecount.dev/idlecount/e2e/cluster/clustertest"
	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/pool/claim"
)

// ground is a namespace of a real cluster with a pool's pods in it. No kubelet is needed: the pods name a scheduler that
// doesn't exist, and the test writes their status.
type ground struct {
	runner config.Runner
	shape  factory.Shape
	config *rest.Config
	client kubernetes.Interface
	anchor *corev1.ConfigMap
}

func newGround(t *testing.T) ground {
	t.Helper()
	cfg := clustertest.RestConfig(t)
	client, err := kubernetes.NewForConfig(cfg)
	require.NoError(t, err)
	runner := config.Runner{
		Path: "runners[0]", Name: "ci", Token: "glrt-claimtest0", BuildsDir: "/builds", CacheDir: "/cache",
		Kubernetes: config.Kubernetes{Namespace: clustertest.Namespace(t), Image: "job:1", HelperImage: "helper:1", IdleEntrypointImage: "entrypoint:1"},
	}
	shape, err := factory.ShapeOf(runner, factory.Job{})
	require.NoError(t, err)
	anchor, err := client.CoreV1().ConfigMaps(shape.Namespace).Create(t.Context(), factory.Anchor(runner, shape), metav1.CreateOptions{})
	require.NoError(t, err)
	return ground{runner, shape, cfg, client, anchor}
}

func (g ground) pods() typed.PodInterface { return g.client.CoreV1().Pods(g.shape.Namespace) }

// idle makes pods that have been ready for a minute.
func (g ground) idle(t *testing.T, n int) []*corev1.Pod {
	t.Helper()
	made := make([]*corev1.Pod, n)
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { made[i] = g.pod(t, fmt.Sprintf("idle-%03d", i), true) })
	}
	group.Wait()
	return made
}

func (g ground) pod(t *testing.T, name string, ready bool) *corev1.Pod {
	pod := factory.IdlePod(g.runner, g.shape, name, 30*time.Minute, factory.Owner{Name: g.anchor.Name, UID: g.anchor.UID})
	pod.Spec.SchedulerName = "nobody"
	pod, err := g.pods().Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Errorf("create a pod: %v", err)
		return nil
	}
	if !ready {
		return pod
	}
	minuteAgo := metav1.NewTime(time.Now().Add(-time.Minute))
	pod.Status.Phase = corev1.PodRunning
	pod.Status.StartTime = &minuteAgo
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: minuteAgo}}
	pod, err = g.pods().UpdateStatus(t.Context(), pod, metav1.UpdateOptions{})
	if err != nil {
		t.Errorf("make a pod ready: %v", err)
	}
	return pod
}

func (g ground) request(job string) claim.Request {
	return claim.Request{Runner: g.runner, Shape: g.shape, Job: factory.JobMeta{ID: job, Timeout: time.Hour}}
}

// wire counts requests and lets a test spoil them.
type wire struct {
	next   http.RoundTripper
	writes atomic.Int64
	spoil  func(req *http.Request, answer *http.Response) error // after the server has done it
}

func (w *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodGet {
		w.writes.Add(1)
	}
	answer, err := w.next.RoundTrip(req)
	if err == nil && w.spoil != nil {
		if spoiled := w.spoil(req, answer); spoiled != nil {
			_ = answer.Body.Close()
			return nil, spoiled
		}
	}
	return answer, err
}

// wired is a client of its own whose requests go through a wire.
func (g ground) wired(t *testing.T) (*wire, typed.PodInterface) {
	t.Helper()
	w := &wire{}
	cfg := rest.CopyConfig(g.config)
	cfg.WrapTransport = func(next http.RoundTripper) http.RoundTripper { w.next = next; return w }
	client, err := kubernetes.NewForConfig(cfg)
	require.NoError(t, err)
	return w, client.CoreV1().Pods(g.shape.Namespace)
}

func TestFiftyClaimersOnTwentyPodsGetOneEach(t *testing.T) {
	g := newGround(t)
	g.idle(t, 20)
	var mu sync.Mutex
	owner := map[types.UID]string{}
	var none int
	var group sync.WaitGroup
	start := make(chan struct{})
	for n := range 50 {
		group.Go(func() {
			<-start
			job := fmt.Sprint(1000 + n)
			got, err := claim.Claim(t.Context(), g.pods(), g.request(job))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(err, claim.ErrNoneIdle):
				none++
			case err != nil:
				t.Errorf("job %s: %v", job, err)
			case owner[got.Pod.UID] != "":
				t.Errorf("jobs %s and %s have one pod, %s", owner[got.Pod.UID], job, got.Pod.Name)
			default:
				owner[got.Pod.UID] = job
			}
		})
	}
	close(start)
	group.Wait()
	require.Len(t, owner, 20, "each pod is claimed")
	require.Equal(t, 30, none, "all others are told that none is idle")

	list, err := g.pods().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, pod := range list.Items {
		require.Equal(t, owner[pod.UID], pod.Labels[factory.LabelJob], "the store says what the claimers were told")
	}
}

func TestAClaimIsOneWrite(t *testing.T) {
	g := newGround(t)
	g.idle(t, 3)
	w, pods := g.wired(t)
	got, err := claim.Claim(t.Context(), pods, g.request("1"))
	require.NoError(t, err)
	require.EqualValues(t, 1, w.writes.Load())
	require.False(t, got.Again)
	require.False(t, got.Warming)
	require.InDelta(t, time.Minute, got.IdleFor, float64(30*time.Second))
	require.Empty(t, got.Pod.OwnerReferences)
	require.Equal(t, factory.StateClaimed, got.Pod.Labels[factory.LabelState])
	require.NotNil(t, got.Pod.Spec.ActiveDeadlineSeconds)
	// One hour for the job, the slack, and the minute that the pod is old.
	require.InDelta(t, (time.Hour + factory.DeadlineSlack + time.Minute).Seconds(), *got.Pod.Spec.ActiveDeadlineSeconds, 30)

	again, err := claim.Claim(t.Context(), pods, g.request("1"))
	require.NoError(t, err)
	require.Equal(t, got.Pod.UID, again.Pod.UID, "the same job gets the same pod")
	require.True(t, again.Again)
	require.EqualValues(t, 1, w.writes.Load(), "and writes nothing for it")
}

// The answer to the write is lost: the job must not take a second pod.
func TestAClaimWhoseAnswerWasLostIsFoundOut(t *testing.T) {
	g := newGround(t)
	g.idle(t, 5)
	w, pods := g.wired(t)
	w.spoil = func(req *http.Request, _ *http.Response) error {
		if req.Method == http.MethodPatch {
			return syscall.ECONNRESET
		}
		return nil
	}
	got, err := claim.Claim(t.Context(), pods, g.request("1"))
	require.NoError(t, err)
	require.EqualValues(t, 1, w.writes.Load())
	require.Equal(t, "1", got.Pod.Labels[factory.LabelJob])
	found, err := claim.FindByJob(t.Context(), g.pods(), g.runner, "1")
	require.NoError(t, err)
	require.Len(t, found, 1)
}

func TestPodsThatChangeBetweenLookAndWriteAreLeftForTheNext(t *testing.T) {
	g := newGround(t)
	g.idle(t, 6)
	pods := &meddler{PodInterface: g.pods(), times: 3}
	got, err := claim.Claim(t.Context(), pods, g.request("1"))
	require.NoError(t, err)
	require.Equal(t, 3, got.Conflicts)
	require.Len(t, pods.met, 3)
	for name := range pods.met {
		pod, err := g.pods().Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		if pod.UID != got.Pod.UID {
			require.Equal(t, factory.StateIdle, pod.Labels[factory.LabelState], "a pod that was lost isn't touched")
		}
	}
}

// meddler changes a pod just before it is claimed.
type meddler struct {
	typed.PodInterface
	times int
	met   map[string]bool
}

func (m *meddler) Patch(ctx context.Context, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions, sub ...string) (*corev1.Pod, error) {
	if m.times > 0 {
		m.times--
		if m.met == nil {
			m.met = map[string]bool{}
		}
		m.met[name] = true
		change, _ := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{"meddled": fmt.Sprint(m.times)}}})
		if _, err := m.PodInterface.Patch(ctx, name, types.MergePatchType, change, metav1.PatchOptions{}); err != nil {
			return nil, err
		}
	}
	return m.PodInterface.Patch(ctx, name, pt, data, opts, sub...)
}

// The manager deletes a surplus pod while a job claims it: one of the two wins, and a claimed pod lives.
func TestAConditionalDeleteNeverHitsAClaimedPod(t *testing.T) {
	g := newGround(t)
	var claims, deletes int
	for n := range 30 {
		seen := g.pod(t, fmt.Sprintf("contested-%d", n), true)
		var group sync.WaitGroup
		var got claim.Claimed
		var claimErr, deleteErr error
		// Both have looked at the pod; from here on they race.
		start := make(chan struct{})
		pods := &starter{PodInterface: g.pods(), start: sync.OnceFunc(func() { close(start) })}
		group.Go(func() { got, claimErr = claim.Claim(t.Context(), pods, g.request(fmt.Sprint(n+1))) })
		group.Go(func() {
			<-start
			deleteErr = g.pods().Delete(t.Context(), seen.Name, metav1.DeleteOptions{
				Preconditions: &metav1.Preconditions{UID: &seen.UID, ResourceVersion: &seen.ResourceVersion},
			})
		})
		group.Wait()
		now, err := g.pods().Get(t.Context(), seen.Name, metav1.GetOptions{})
		if claimErr == nil {
			claims++
			require.Equal(t, seen.UID, got.Pod.UID)
			require.NoError(t, err, "a claimed pod was deleted")
			require.Nil(t, now.DeletionTimestamp, "a claimed pod was deleted")
			require.True(t, apierrors.IsConflict(deleteErr), "the delete lost: %v", deleteErr)
			require.NoError(t, claim.Delete(t.Context(), g.pods(), now, new(int64(0))))
		} else {
			deletes++
			require.ErrorIs(t, claimErr, claim.ErrNoneIdle)
			require.NoError(t, deleteErr)
		}
	}
	t.Logf("%d claims and %d deletes were first", claims, deletes)
}

// starter says when a claim is about to write.
type starter struct {
	typed.PodInterface
	start func()
}

func (s *starter) Patch(ctx context.Context, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions, sub ...string) (*corev1.Pod, error) {
	s.start()
	return s.PodInterface.Patch(ctx, name, pt, data, opts, sub...)
}

func TestDeletingAPoolTakesItsIdlePodsAndNoClaimedOne(t *testing.T) {
	g := newGround(t)
	g.idle(t, 4)
	got, err := claim.Claim(t.Context(), g.pods(), g.request("1"))
	require.NoError(t, err)
	require.NoError(t, g.client.CoreV1().ConfigMaps(g.shape.Namespace).Delete(t.Context(), g.anchor.Name, metav1.DeleteOptions{}))
	// The garbage collector has been here when the idle pods are gone.
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		list, err := g.pods().List(t.Context(), metav1.ListOptions{LabelSelector: factory.LabelState + "=" + factory.StateIdle})
		require.NoError(c, err)
		require.Empty(c, list.Items)
	}, time.Minute, 200*time.Millisecond)
	now, err := g.pods().Get(t.Context(), got.Pod.Name, metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, got.Pod.UID, now.UID)
	require.Nil(t, now.DeletionTimestamp)
}

func TestReadyPodsGoFirstThenWarmingOnes(t *testing.T) {
	g := newGround(t)
	g.pod(t, "a-warming", false)
	ready := g.pod(t, "z-ready", true)
	first, err := claim.Claim(t.Context(), g.pods(), g.request("1"))
	require.NoError(t, err)
	require.Equal(t, ready.Name, first.Pod.Name)
	second, err := claim.Claim(t.Context(), g.pods(), g.request("2"))
	require.NoError(t, err)
	require.Equal(t, "a-warming", second.Pod.Name)
	require.True(t, second.Warming)
	_, err = claim.Claim(t.Context(), g.pods(), g.request("3"))
	require.ErrorIs(t, err, claim.ErrNoneIdle)
}

func TestAJobThatHoldsTwoPodsKeepsOne(t *testing.T) {
	g := newGround(t)
	g.idle(t, 2)
	kept, err := claim.Claim(t.Context(), g.pods(), g.request("1"))
	require.NoError(t, err)
	cold := factory.JobPod(g.runner, g.shape, "cold", factory.JobMeta{ID: "1"})
	cold.Spec.SchedulerName = "nobody"
	_, err = g.pods().Create(t.Context(), cold, metav1.CreateOptions{})
	require.NoError(t, err)

	got, err := claim.Claim(t.Context(), g.pods(), g.request("1"))
	require.NoError(t, err)
	require.Equal(t, kept.Pod.UID, got.Pod.UID)
	_, err = g.pods().Get(t.Context(), "cold", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "the second pod is deleted: %v", err)
}

func TestDeleteSparesAnotherPodOfTheSameName(t *testing.T) {
	g := newGround(t)
	old := g.pod(t, "again", true)
	require.NoError(t, claim.Delete(t.Context(), g.pods(), old, new(int64(0))))
	fresh := g.pod(t, "again", true)
	require.NoError(t, claim.Delete(t.Context(), g.pods(), old, new(int64(0))), "what is gone is no error")
	now, err := g.pods().Get(t.Context(), "again", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, fresh.UID, now.UID)
}

func TestCountPool(t *testing.T) {
	g := newGround(t)
	g.idle(t, 3)
	g.pod(t, "warming", false)
	_, err := claim.Claim(t.Context(), g.pods(), g.request("1"))
	require.NoError(t, err)
	ending := g.pod(t, "ending", true)
	_, err = g.pods().Patch(t.Context(), ending.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":["idlecount.dev/test"]}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		_, _ = g.pods().Patch(context.Background(), ending.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	})
	require.NoError(t, claim.Delete(t.Context(), g.pods(), ending, new(int64(0))))
	count, err := claim.CountPool(t.Context(), g.pods(), factory.PoolName(g.runner, g.shape))
	require.NoError(t, err)
	require.Equal(t, claim.Count{Claimed: 1, Warming: 1, Ending: 1}, count)
}
