package chaos

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"idlecount.dev/idlecount/e2e/chaos/fleet"
	"idlecount.dev/idlecount/e2e/chaos/proxy"
	"idlecount.dev/idlecount/e2e/cluster/clustertest"
	"idlecount.dev/idlecount/e2e/images"
	"idlecount.dev/idlecount/factory"
	"idlecount.dev/idlecount/pool"
)

var (
	long = flag.Bool("long", false, "the long form of the chaos test: 5,000 pods, ten kills")
	seed = flag.Uint64("seed", 0, "of the chaos test's random choices; 0 = another one each time")
)

// form is how hard the times are.
type form struct {
	runners  []fleet.Runner // without namespaces
	jobs     int            // at a time
	claims   int            // at least
	last     time.Duration  // each lasts up to this
	kills    int
	between  time.Duration // kills: up to this, at least a third of it
	lag      time.Duration // of what managers watch: up to this
	patience time.Duration // for what is to come true
	slack    int           // pods over a target that are no violation
	// release lets the lease of a killed leader go, as if it had run out: fifteen seconds less to wait for each.
	release bool
}

// The runners: one plain, one whose pods are replaced all the time since they expire, one with a limit that its jobs meet.
func short() form {
	return form{
		runners: []fleet.Runner{
			{Token: "plainplain", Images: 2, Count: 50, IdleTime: time.Hour},
			{Token: "shortlived", Images: 2, Count: 50, IdleTime: 16 * time.Second},
			{Token: "limitlimit", Images: 2, Count: 50, IdleTime: time.Hour, Limit: 102},
		},
		jobs: 10, claims: 100, last: 2 * time.Second, kills: 4, between: 9 * time.Second, lag: 700 * time.Millisecond, patience: 2 * time.Minute, release: true,
	}
}

func fullForm() form {
	return form{
		runners: []fleet.Runner{
			{Token: "plainplain", Images: 10, Count: 250, IdleTime: 2 * time.Hour},
			{Token: "shortlived", Images: 5, Count: 250, IdleTime: 3 * time.Minute},
			{Token: "limitlimit", Images: 5, Count: 250, IdleTime: 2 * time.Hour, Limit: 1255},
		},
		jobs: 50, claims: 2000, last: 4 * time.Second, kills: 10, between: 25 * time.Second, lag: 2 * time.Second, patience: 15 * time.Minute,
	}
}

// TestChaos fills pools while managers are killed at random, their watches lag and jobs claim, finish and claim again; the
// checker holds at each event of each pod what must always hold.
func TestChaos(t *testing.T) {
	f := short()
	if *long {
		f = fullForm()
	}
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("seed %d (repeat with -seed)", *seed)
	s := newScene(t, f)
	begin := time.Now()
	s.startManagers()
	stopJobs := s.startJobs()
	s.killManagers(rand.New(rand.NewPCG(*seed, 1)))
	t.Logf("%s: the kills are over", time.Since(begin).Round(time.Second))
	s.await("jobs have claimed many pods", func() []string {
		if n := s.jobs.Claimed.Load(); n < int64(f.claims) {
			return []string{fmt.Sprintf("%d claims of %d", n, f.claims)}
		}
		return nil
	})
	stopJobs()
	t.Logf("%s: the jobs have ended", time.Since(begin).Round(time.Second))

	s.await("every pool is full to the pod", func() []string { return s.checker.Unfilled(time.Now()) })
	t.Logf("%s: every pool is full", time.Since(begin).Round(time.Second))
	require.Positive(t, s.leadersKilled, "a leader was killed")

	// The runners leave the file: all goes, and nobody starts a manager again for that.
	s.checker.Emptying()
	nobody := fleet.Runner{Token: "nobody000", Namespace: s.runners[0].Namespace, Images: 1, IdleTime: time.Hour}
	require.NoError(t, fleet.Write(s.config, []fleet.Runner{nobody}))
	s.await("nothing is left", s.leftOver)
	for _, m := range s.managers {
		m.process.Stop()
	}
	stats := s.checker.Stats()
	t.Logf("%s: nothing is left. %d events, %d pods created, %d claims (%d conflicts, %d found none), %d leaders of %d managers killed, "+
		"%d pods expired, %d were deleted near their end, %d given back at a limit, at most %d pods were over a target to replace such",
		time.Since(begin).Round(time.Second), stats.Events, stats.Created, s.jobs.Claimed.Load(), s.jobs.Conflicts.Load(), s.jobs.None.Load(),
		s.leadersKilled, f.kills, stats.Expired, stats.Rotated, stats.GivenBack, stats.MostOver)
	require.Empty(t, s.checker.Close(time.Now()))
}

// scene is where it happens.
type scene struct {
	t             *testing.T
	form          form
	client        kubernetes.Interface
	runners       []fleet.Runner
	config        string
	checker       *Checker
	jobs          *Jobs
	managers      []*managed
	leadersKilled int
}

// managed is a manager with a lagging way to the API server of its own.
type managed struct {
	command fleet.Command
	process *fleet.Process
}

func newScene(t *testing.T, f form) *scene {
	t.Helper()
	config := clustertest.RestConfig(t)
	s := &scene{t: t, form: f, config: filepath.Join(t.TempDir(), "config.toml")}
	var err error
	s.client, err = kubernetes.NewForConfig(protobuf(config))
	require.NoError(t, err)
	clustertest.NeedsKWOK(t, s.client)
	for _, r := range f.runners {
		r.Namespace = clustertest.Namespace(t)
		s.runners = append(s.runners, r)
	}
	require.NoError(t, fleet.Write(s.config, s.runners))
	pools, err := fleet.Pools(s.config)
	require.NoError(t, err)
	wants := map[PoolID]Want{}
	for _, p := range pools {
		wants[PoolID{p.Namespace, p.Name}] = Want{Target: p.Runner.Kubernetes.IdleCount + f.slack, Runner: p.Runner.Token, Limit: p.Runner.Limit}
	}
	s.checker = NewChecker(wants)
	s.jobs = &Jobs{Client: s.client, Checker: s.checker, Pools: pools, Last: f.last}
	s.watch()
	s.prepareManagers(config)
	return s
}

// protobuf is how drivers and managers speak; with thousands of pods JSON would be what is measured.
func protobuf(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.ContentType, config.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json"
	return config
}

// watch shows the checker all events from the first on, and plays the pods' idle timers, until the test ends.
func (s *scene) watch() {
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	var waits []func() error
	for _, r := range s.runners {
		wait, err := s.checker.Watch(ctx, s.client, r.Namespace)
		require.NoError(s.t, err)
		waits = append(waits, wait)
	}
	timers := make(chan error, 1)
	go func() { timers <- s.checker.EndIdlePods(ctx, s.client) }()
	s.t.Cleanup(func() {
		cancel()
		for _, wait := range waits {
			require.NoError(s.t, wait())
		}
		require.NoError(s.t, <-timers)
	})
}

func (s *scene) prepareManagers(config *rest.Config) {
	binaries, err := images.BuildBinaries(s.t.Context(), s.t.TempDir(), images.Idlecount)
	require.NoError(s.t, err)
	for i := range 2 {
		random, mu := rand.New(rand.NewPCG(*seed, uint64(100+i))), sync.Mutex{}
		p, err := proxy.Start(config, proxy.Options{Lag: func() time.Duration {
			mu.Lock()
			defer mu.Unlock()
			return upTo(random, s.form.lag)
		}})
		require.NoError(s.t, err)
		s.t.Cleanup(p.Close)
		kubeconfig := filepath.Join(s.t.TempDir(), "kubeconfig")
		require.NoError(s.t, p.WriteKubeconfig(kubeconfig))
		s.managers = append(s.managers, &managed{command: fleet.Command{
			Program: binaries.Idlecount, Config: s.config, Kubeconfig: kubeconfig, LeaseNamespace: s.runners[0].Namespace,
		}})
	}
}

func (s *scene) startManagers() {
	for _, m := range s.managers {
		s.start(m)
		s.t.Cleanup(func() { m.process.Kill() })
	}
	s.t.Cleanup(func() {
		for i, m := range s.managers {
			if log := m.process.Log(); s.t.Failed() {
				s.t.Logf("the log of manager %d since its last start:\n%s", i, log[max(0, len(log)-6000):])
			}
		}
	})
}

func (s *scene) start(m *managed) {
	process, err := m.command.Start()
	require.NoError(s.t, err)
	m.process = process
}

// startJobs begins to claim; stop waits until the last job has ended.
func (s *scene) startJobs() (stop func()) {
	end := make(chan struct{})
	errs := make(chan error, s.form.jobs)
	for i := range s.form.jobs {
		go func() { errs <- s.jobs.Run(s.t.Context(), end, rand.New(rand.NewPCG(*seed, uint64(1000+i)))) }()
	}
	return func() {
		close(end)
		for range s.form.jobs {
			require.NoError(s.t, <-errs)
		}
	}
}

// killManagers kills the leader, the other one, or both, and starts them again.
func (s *scene) killManagers(random *rand.Rand) {
	for killed := 0; killed < s.form.kills; {
		pause(s.t.Context().Done(), s.form.between/3+upTo(random, 2*s.form.between/3))
		s.check()
		victims := s.victims(random)
		killed += len(victims)
		for _, m := range victims {
			if m.process.Ended() {
				s.t.Fatalf("a manager has ended by itself:\n%s", m.process.Log())
			}
			leader := m.process.Leads()
			m.process.Kill()
			if leader {
				s.leadersKilled++
				s.releaseLease()
			}
		}
		for _, m := range victims {
			s.start(m)
		}
	}
}

// victims are the leader more often than not: its death is what matters.
func (s *scene) victims(random *rand.Rand) []*managed {
	first := s.managers[random.IntN(2)]
	switch random.IntN(6) {
	case 0:
		return s.managers
	case 1:
		return []*managed{first}
	default:
		if other := s.other(first); other.process.Leads() {
			first = other
		}
		return []*managed{first}
	}
}

func (s *scene) other(m *managed) *managed {
	if s.managers[0] == m {
		return s.managers[1]
	}
	return s.managers[0]
}

func (s *scene) releaseLease() {
	if !s.form.release {
		return
	}
	_, err := s.client.CoordinationV1().Leases(s.runners[0].Namespace).Patch(s.t.Context(), pool.DefaultLeaseName,
		types.MergePatchType, []byte(`{"spec":{"holderIdentity":""}}`), metav1.PatchOptions{})
	require.NoError(s.t, err)
}

// leftOver says what is there although no runner wants it.
func (s *scene) leftOver() []string {
	var left []string
	if n := s.checker.Remaining(); n > 0 {
		return []string{fmt.Sprintf("%d pods", n)}
	}
	for _, r := range s.runners {
		anchors, err := s.client.CoreV1().ConfigMaps(r.Namespace).List(s.t.Context(), metav1.ListOptions{LabelSelector: factory.LabelPool})
		require.NoError(s.t, err)
		for i := range anchors.Items {
			left = append(left, "the anchor "+r.Namespace+"/"+anchors.Items[i].Name)
		}
	}
	return left
}

// check ends the test at the first thing that must not be.
func (s *scene) check() {
	s.t.Helper()
	violations := s.checker.Violations()
	if len(violations) == 0 {
		return
	}
	lines := make([]string, 0, 20)
	for _, v := range violations[:min(20, len(violations))] {
		lines = append(lines, v.String())
	}
	s.t.Fatalf("%d times something was that must not be:\n%s", len(violations), strings.Join(lines, "\n"))
}

// await waits until nothing is missing for something to come true.
func (s *scene) await(what string, missing func() []string) {
	s.t.Helper()
	timeout := time.After(s.form.patience)
	for {
		changed := s.checker.Changed()
		s.check()
		still := missing()
		if len(still) == 0 {
			return
		}
		select {
		case <-changed:
			pause(s.t.Context().Done(), 50*time.Millisecond) // a burst of events is looked at once
		case <-time.After(200 * time.Millisecond): // time changes things too, and anchors aren't watched
		case <-timeout:
			s.t.Fatalf("this never came true: %s\n%s", what, strings.Join(still, "\n"))
		}
	}
}
