package factory

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"idlecount.dev/idlecount/config"
)

// scribble overwrites everything that can be reached from a value by pointers, slices and maps.
func scribble(t *testing.T, object any) {
	t.Helper()
	var walk func(v reflect.Value)
	walk = func(v reflect.Value) {
		switch v.Kind() {
		case reflect.Pointer, reflect.Interface:
			if !v.IsNil() {
				walk(v.Elem())
			}
		case reflect.Struct:
			for i := range v.NumField() {
				if v.Type().Field(i).IsExported() {
					walk(v.Field(i))
				}
			}
		case reflect.Slice:
			for i := range v.Len() {
				walk(v.Index(i))
			}
		case reflect.Map:
			for _, key := range v.MapKeys() {
				if v.Type().Elem().Kind() == reflect.String {
					v.SetMapIndex(key, reflect.ValueOf("scribbled").Convert(v.Type().Elem()))
				}
			}
		case reflect.String:
			if v.CanSet() {
				v.SetString("scribbled")
			}
		case reflect.Int64:
			if v.CanSet() {
				v.SetInt(-1)
			}
		case reflect.Bool:
			if v.CanSet() {
				v.SetBool(!v.Bool())
			}
		default:
		}
	}
	walk(reflect.ValueOf(object))
}

func TestTheTemplateHash(t *testing.T) {
	type change = func(r *config.Runner, idle *time.Duration)
	hash := func(f change) string {
		r, idle := load(t, "full"), time.Hour
		f(&r, &idle)
		return TemplateHash(r, shapeOf(t, r, Job{}), idle)
	}
	before := hash(func(*config.Runner, *time.Duration) {})
	for name, f := range map[string]change{
		"the idle time":          func(_ *config.Runner, d *time.Duration) { *d = time.Minute },
		"the abandon time":       func(r *config.Runner, _ *time.Duration) { r.Kubernetes.IdleAbandonTime.Duration = time.Minute },
		"the entrypoint's image": func(r *config.Runner, _ *time.Duration) { r.Kubernetes.IdleEntrypointImage += "2" },
		"anything of the shape":  func(r *config.Runner, _ *time.Duration) { r.Kubernetes.CPULimit = "3" },
	} {
		require.NotEqual(t, before, hash(f), name)
	}
	for name, f := range map[string]change{
		"how many":            func(r *config.Runner, _ *time.Duration) { r.Kubernetes.IdleCount++ },
		"the limit":           func(r *config.Runner, _ *time.Duration) { r.Limit++ },
		"the rest of a token": func(r *config.Runner, _ *time.Duration) { r.Token += "x" },
	} {
		require.Equal(t, before, hash(f), name)
	}
	r := load(t, "full")
	s := shapeOf(t, r, Job{})
	require.Equal(t, before, IdlePod(r, s, "one", time.Hour, testAnchor).Annotations[AnnotationTemplate])
	require.Equal(t, before, IdlePod(r, s, "two", time.Hour, Owner{"other", "other"}).Annotations[AnnotationTemplate])
}

func TestEqualArgumentsMakeEqualPods(t *testing.T) {
	for name := range shapes {
		first := objects(t, name)
		for range 20 { // maps are walked in another order each time
			require.Equal(t, first, objects(t, name))
		}
	}
}

func TestTheInitContainerNeverEnlargesThePod(t *testing.T) {
	for name := range shapes {
		r := load(t, name)
		spec := IdlePod(r, shapeOf(t, r, Job{}), "pod", 0, testAnchor).Spec
		helper := spec.Containers[1].Resources
		require.Equal(t, helper, spec.InitContainers[0].Resources)
	}
}

func TestBuildsAndCacheInOneFolder(t *testing.T) {
	r := load(t, "minimal")
	r.CacheDir = r.BuildsDir
	spec := IdlePod(r, shapeOf(t, r, Job{}), "pod", 0, testAnchor).Spec
	require.Len(t, spec.Containers[0].VolumeMounts, 3, "the API server refuses two mounts at one path")
	require.Len(t, spec.Volumes, 2)
}

func TestPhaseOf(t *testing.T) {
	now := metav1.Now()
	ready := func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodRunning
		p.Status.Conditions = []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
			{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: now},
		}
	}
	claimed := func(p *corev1.Pod) { p.Labels[LabelState] = StateClaimed }
	phase := func(phase corev1.PodPhase) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Status.Phase = phase } }
	deleted := func(p *corev1.Pod) { p.DeletionTimestamp = &now }
	for name, c := range map[string]struct {
		changes []func(*corev1.Pod)
		want    Phase
	}{
		"just created":                         {nil, Warming},
		"waiting for a node or an image":       {[]func(*corev1.Pod){phase(corev1.PodPending)}, Warming},
		"running, not all containers ready":    {[]func(*corev1.Pod){phase(corev1.PodRunning)}, Warming},
		"on a node that was lost":              {[]func(*corev1.Pod){phase(corev1.PodUnknown)}, Warming},
		"ready":                                {[]func(*corev1.Pod){ready}, Idle},
		"claimed while ready":                  {[]func(*corev1.Pod){ready, claimed}, Claimed},
		"claimed while warming":                {[]func(*corev1.Pod){phase(corev1.PodPending), claimed}, Claimed},
		"ended by its idle timer":              {[]func(*corev1.Pod){phase(corev1.PodSucceeded)}, Expired},
		"evicted, or ended by a crash":         {[]func(*corev1.Pod){phase(corev1.PodFailed)}, Failed},
		"its job is over":                      {[]func(*corev1.Pod){claimed, phase(corev1.PodSucceeded)}, Finished},
		"its job ended badly":                  {[]func(*corev1.Pod){claimed, phase(corev1.PodFailed)}, Finished},
		"being deleted while idle":             {[]func(*corev1.Pod){ready, deleted}, Ending},
		"being deleted while claimed":          {[]func(*corev1.Pod){ready, claimed, deleted}, Ending},
		"being deleted after its job":          {[]func(*corev1.Pod){claimed, phase(corev1.PodFailed), deleted}, Ending},
		"ended, with its last condition stale": {[]func(*corev1.Pod){ready, phase(corev1.PodFailed)}, Failed},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{LabelState: StateIdle}}}
			for _, change := range c.changes {
				change(pod)
			}
			require.Equal(t, c.want, PhaseOf(pod))
		})
	}
}

func TestReadySince(t *testing.T) {
	at := metav1.NewTime(time.Unix(1000, 0))
	pod := &corev1.Pod{}
	require.Nil(t, ReadySince(pod))
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: at}}
	require.Nil(t, ReadySince(pod))
	pod.Status.Conditions[0].Status = corev1.ConditionTrue
	require.Equal(t, at, *ReadySince(pod))
}

func TestNamesAndLabelValuesAreValid(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	alphabet := []rune("abcXYZ019-_./ ä日:$\x00")
	text := func() string {
		var b strings.Builder
		for range random.IntN(90) {
			b.WriteRune(alphabet[random.IntN(len(alphabet))])
		}
		return b.String()
	}
	s := shapeOf(t, load(t, "minimal"), Job{})
	for range 5000 {
		r := config.Runner{Token: text(), Name: text()}
		value := text()
		require.Empty(t, validation.IsValidLabelValue(labelValue(value)), "%q", value)
		require.Empty(t, validation.IsValidLabelValue(RunnerLabel(r)), "%q", r.Token)
		pool := PoolName(r, s)
		require.Empty(t, validation.IsDNS1123Label(pool), "%q", r.Token)
		require.True(t, strings.HasSuffix(pool, "-"+s.Hash()))
		require.Empty(t, validation.IsDNS1123Label(PodName(pool, "x7k2p")), "%q", r.Token)
		name := JobPodName(r, text(), "x7k2p")
		require.Empty(t, validation.IsDNS1123Label(name), name)
		require.True(t, strings.HasSuffix(name, "-x7k2p"))
		for key, value := range ClaimMetadata(r, JobMeta{ID: text(), ProjectID: text(), ProjectName: text(), ConcurrentID: text()}, Warm).Labels {
			require.Empty(t, validation.IsValidLabelValue(value), key)
			require.Empty(t, validation.IsQualifiedName(key))
		}
	}
	require.Empty(t, validation.IsDNS1123Subdomain(secretName(JobPodName(config.Runner{Token: strings.Repeat("x", 99)}, strings.Repeat("1", 99), "x7k2p"), strings.Repeat("s", 63))))
}

func TestLabelValues(t *testing.T) {
	long := strings.Repeat("x", 70)
	for text, want := range map[string]string{
		"":        "",
		"grp/sub": "grp_sub",
		"a b":     "a_b",
		"-abc-":   "abc-" + shortHash([]byte("-abc-")),
		"///":     shortHash([]byte("///")),
		long:      long[:52] + "-" + shortHash([]byte(long)),
		long[:63]: long[:63],
	} {
		require.Equal(t, want, labelValue(text))
	}
	require.NotEqual(t, labelValue(long+"a"), labelValue(long+"b"), "what differs behind the cut stays apart")
}
