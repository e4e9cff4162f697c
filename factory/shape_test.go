package factory

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"

	"idlecount.dev/idlecount/config"
)

// leaves calls f with each settable leaf of a struct and its path of TOML names (or Go names, where there is none).
func leaves(v reflect.Value, path string, f func(path string, leaf reflect.Value)) {
	for i := range v.NumField() {
		field, name := v.Field(i), v.Type().Field(i).Tag.Get("toml")
		if name == "" || name == "-" {
			name = v.Type().Field(i).Name
		}
		if path != "" {
			name = path + "." + name
		}
		if field.Kind() == reflect.Struct && field.Type() != reflect.TypeFor[config.Duration]() {
			leaves(field, name, f)
			continue
		}
		f(name, field)
	}
}

// honoured are valid values for the keys that make a pod, other than the base's. A key that is not here gets one by its
// type; one that must not change a shape is in ignored.
var honoured = map[string]any{
	"kubernetes.namespace":                                                          "other",
	"kubernetes.image":                                                              "alpine:3.21",
	"kubernetes.helper_image":                                                       "helper:2",
	"kubernetes.allowed_pull_policies":                                              []string{"always"},
	"kubernetes.idle_image":                                                         []config.IdleImage{{Image: "alpine:3.22", CPURequest: new("3")}},
	"kubernetes.pull_policy":                                                        config.StringOrList{"never"},
	"kubernetes.service_account":                                                    "other",
	"kubernetes.node_tolerations":                                                   map[string]string{"dedicated=ci": "NoSchedule"},
	"kubernetes.pod_security_context.selinux_type":                                  "spc_t",
	"kubernetes.pod_security_context.supplemental_groups":                           []int64{1, 2},
	"kubernetes.build_container_security_context.run_as_non_root":                   new(false),
	"kubernetes.services":                                                           []config.Service{{Name: "redis:8"}, {Name: "postgres:17"}},
	"kubernetes.pod_security_context.seccomp_profile.localhost_profile":             "a.json",
	"kubernetes.pod_security_context.app_armor_profile.localhost_profile":           "a",
	"kubernetes.build_container_security_context.seccomp_profile.localhost_profile": "a.json",
	"kubernetes.affinity.node_affinity.required_during_scheduling_ignored_during_execution.node_selector_terms": []config.NodeSelectorTerm{{MatchExpressions: []config.Expression{{Key: "pool", Operator: "Exists"}}}},
	"kubernetes.affinity.node_affinity.preferred_during_scheduling_ignored_during_execution":                    []config.PreferredOfNode{{Weight: 1}},
	"kubernetes.affinity.pod_affinity.required_during_scheduling_ignored_during_execution":                      []config.PodAffinityTerm{{TopologyKey: "zone"}},
	"kubernetes.affinity.pod_affinity.preferred_during_scheduling_ignored_during_execution":                     []config.PreferredOfPod{{Weight: 1}},
	"kubernetes.affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution":                 []config.PodAffinityTerm{{TopologyKey: "zone"}},
	"kubernetes.affinity.pod_anti_affinity.preferred_during_scheduling_ignored_during_execution":                []config.PreferredOfPod{{Weight: 1}},
	"kubernetes.scheduler_name":      "other",
	"kubernetes.priority_class_name": "other",
	"kubernetes.runtime_class_name":  "other",
	"builds_dir":                     "/other",
	"cache_dir":                      "/other",
}

// ignored are the keys that no job can notice, each with a value and why it is no part of the shape.
var ignored = map[string]struct {
	value any
	why   string
}{
	"Path":                    {"runners[7]", "where an entry stands is nobody's business"},
	"name":                    {"other", "set at the claim"},
	"url":                     {"https://other.example.com", "the driver's"},
	"token":                   {"glrt-fakefakefakeOTHER", "only the short token, which is a label, is seen"},
	"executor":                {"kubernetes", "GitLab's"},
	"shell":                   {"sh", "the entrypoint chooses the shell for each script"},
	"limit":                   {7, "the manager's"},
	"HasKubernetes":           {false, "the manager's"},
	"HasIdle":                 {false, "the manager's"},
	"kubernetes.host":         {"https://other", "how the API is reached"},
	"kubernetes.context":      {"other", "how the API is reached"},
	"kubernetes.cert_file":    {"/other", "how the API is reached"},
	"kubernetes.key_file":     {"/other", "how the API is reached"},
	"kubernetes.ca_file":      {"/other", "how the API is reached"},
	"kubernetes.poll_timeout": {7, "the driver's patience"},
	"kubernetes.cleanup_grace_period_seconds":              {new(int64(7)), "of the delete call"},
	"kubernetes.allowed_images":                            {[]string{"other"}, "what the driver refuses"},
	"kubernetes.allowed_services":                          {[]string{"other"}, "what the driver refuses"},
	"kubernetes.allowed_users":                             {[]string{"7"}, "the shape is that of the user that is allowed"},
	"kubernetes.allowed_groups":                            {[]string{"7"}, "the shape is that of the group that is allowed"},
	"kubernetes.autoscaler.policy":                         {[]config.AutoscalerPolicy{{}}, "the manager's"},
	"kubernetes.autoscaler.max_pause_pods":                 {7, "of pause pods"},
	"kubernetes.autoscaler.pause_pod_image":                {"other", "of pause pods"},
	"kubernetes.autoscaler.pause_pod_priority_class_name":  {"other", "of pause pods"},
	"kubernetes.autoscaler.pause_pod_image_pull_secrets":   {[]string{"other"}, "of pause pods"},
	"kubernetes.idle_lead_time":                            {config.Duration{Duration: time.Minute}, "the manager's"},
	"kubernetes.idle_count":                                {7, "the manager's"},
	"kubernetes.idle_time":                                 {config.Duration{Duration: time.Minute}, "over when a job comes"},
	"kubernetes.idle_images":                               {[]string{"other"}, "which pools there are"},
	"kubernetes.idle_strategy":                             {"pause", "the manager's"},
	"kubernetes.idle_pause_count":                          {7, "of pause pods"},
	"kubernetes.idle_quota_headroom":                       {new(7), "of pause pods"},
	"kubernetes.pod_spec":                                  {[]config.PodSpec{{Patch: "hostNetwork: true"}}, "of the pods of GitLab's executor and of pause pods; a warning says so"},
	"environment":                                          {[]string{config.FlagPodSpec + "=true"}, "as pod_spec; what else is in it is the jobs'"},
	"feature_flags.FF_USE_ADVANCED_POD_SPEC_CONFIGURATION": {new(true), "as pod_spec"},
	"kubernetes.idle_policy":                               {[]config.IdlePolicy{{}}, "the manager's"},
	"kubernetes.scale_factor":                              {1.5, "the manager's"},
	"kubernetes.scale_factor_limit":                        {7, "the manager's"},
	"kubernetes.idle_abandon_time":                         {config.Duration{Duration: time.Minute}, "nothing that a job with a driver sees"},
	"kubernetes.idle_entrypoint_image":                     {"other:2", "releases with one protocol are one to a job"},
}

// other is a value of a leaf's type that differs from the one it has.
func other(t *testing.T, path string, leaf reflect.Value) reflect.Value {
	t.Helper()
	if v, ok := honoured[path]; ok {
		return reflect.ValueOf(v)
	}
	name := path[strings.LastIndex(path, ".")+1:]
	switch {
	case strings.HasSuffix(name, "_request"), strings.HasSuffix(name, "_limit"):
		return reflect.ValueOf("123")
	case strings.HasSuffix(path, "seccomp_profile.type"), strings.HasSuffix(path, "app_armor_profile.type"):
		return reflect.ValueOf("Unconfined")
	case name == "localhost_profile":
		return reflect.ValueOf("other")
	case name == "selinux_type":
		return reflect.ValueOf("spc_t")
	case name == "proc_mount":
		return reflect.ValueOf("unmasked")
	}
	switch leaf.Interface().(type) {
	case *bool:
		return reflect.ValueOf(new(leaf.IsNil() || !leaf.Elem().Bool()))
	case *int64:
		return reflect.ValueOf(new(int64(4242)))
	case []string:
		return reflect.ValueOf([]string{"OTHER"})
	case map[string]string:
		return reflect.ValueOf(map[string]string{"example.com/key": "other"})
	}
	t.Fatalf("%s is new in the configuration: say in honoured or ignored what it means for the shape", path)
	return reflect.Value{}
}

// base is a runner with a service, so that the keys for services have something to work on.
func base(t *testing.T) config.Runner {
	r := load(t, "minimal")
	r.Kubernetes.Services = []config.Service{{Name: "redis:8"}}
	return r
}

// seen is a pod without the labels that follow from the shape hash, and without its template hash, as JSON.
func seen(t *testing.T, r config.Runner, s Shape) string {
	t.Helper()
	pod := IdlePod(r, s, "pod", 0, testAnchor)
	delete(pod.Labels, LabelShape)
	delete(pod.Labels, LabelPool)
	delete(pod.Annotations, AnnotationTemplate)
	b, err := json.Marshal(pod)
	require.NoError(t, err)
	return string(b)
}

func TestEveryKeyOfTheConfigurationIsHonouredOrHasAReasonNotToBe(t *testing.T) {
	r := base(t)
	before := shapeOf(t, r, Job{})
	done := map[string]bool{}
	leaves(reflect.ValueOf(&r).Elem(), "", func(path string, _ reflect.Value) {
		t.Run(path, func(t *testing.T) {
			changed := base(t)
			var leaf reflect.Value
			leaves(reflect.ValueOf(&changed).Elem(), "", func(p string, v reflect.Value) {
				if p == path {
					leaf = v
				}
			})
			if skip, ok := ignored[path]; ok {
				require.NotEqual(t, leaf.Interface(), skip.value, "the test changes nothing")
				leaf.Set(reflect.ValueOf(skip.value))
				require.Equal(t, before.Hash(), shapeOf(t, changed, Job{}).Hash(), "%s: %s", path, skip.why)
				done[path] = true
				return
			}
			leaf.Set(other(t, path, leaf))
			if strings.HasSuffix(path, "localhost_profile") {
				sibling(&changed, path, "type", "Localhost")
			}
			after := shapeOf(t, changed, Job{})
			require.NotEqual(t, before.Hash(), after.Hash(), "a warm pod would be taken for a job that wants another")
			require.NotZero(t, Differs(before, after))
			require.NotEqual(t, seen(t, r, before), seen(t, changed, after), "in the hash, but not in the pod")
			done[path] = true
		})
	})
	for path := range honoured {
		require.Contains(t, done, path, "no such key")
	}
	for path := range ignored {
		require.Contains(t, done, path, "no such key")
	}
	require.Greater(t, len(done), 100)
}

// sibling sets the string that stands beside path in the same table.
func sibling(r *config.Runner, path, name, value string) {
	table := path[:strings.LastIndex(path, ".")+1]
	leaves(reflect.ValueOf(r).Elem(), "", func(p string, v reflect.Value) {
		if p == table+name {
			v.SetString(value)
		}
	})
}

func TestALocalhostProfileIsMoreThanItsType(t *testing.T) {
	a, b := base(t), base(t)
	a.Kubernetes.PodSecurityContext.SeccompProfile = config.Profile{Type: "Localhost", LocalhostProfile: "a.json"}
	b.Kubernetes.PodSecurityContext.SeccompProfile = config.Profile{Type: "Localhost", LocalhostProfile: "b.json"}
	require.NotEqual(t, shapeOf(t, a, Job{}).Hash(), shapeOf(t, b, Job{}).Hash())
}

func TestTheShortTokenIsALabelAndNoPartOfTheShape(t *testing.T) {
	a, b := load(t, "minimal"), load(t, "minimal")
	b.Token = "glrt-another-runner"
	sa, sb := shapeOf(t, a, Job{}), shapeOf(t, b, Job{})
	require.Equal(t, sa.Hash(), sb.Hash())
	require.NotEqual(t, RunnerLabel(a), RunnerLabel(b))
	require.NotEqual(t, PoolName(a, sa), PoolName(b, sb))
}

func TestEveryPartOfAServiceAndOfAJobIsPartOfTheShape(t *testing.T) {
	r := load(t, "minimal")
	r.Kubernetes.PullPolicy = config.StringOrList{"always", "never"}
	config1 := func(change func(*config.Service)) Shape {
		r := r
		r.Kubernetes.Services = []config.Service{{Name: "redis:8", Environment: []string{"A=1"}}}
		change(&r.Kubernetes.Services[0])
		return shapeOf(t, r, Job{})
	}
	job1 := func(change func(*Job, *Service)) Shape {
		job := Job{Services: []Service{{Name: "redis:8", Variables: map[string]string{"A": "1"}}}}
		change(&job, &job.Services[0])
		return shapeOf(t, r, job)
	}
	for name, c := range map[string][2]Shape{
		"config name":         {config1(func(*config.Service) {}), config1(func(s *config.Service) { s.Name = "redis:7" })},
		"config alias":        {config1(func(*config.Service) {}), config1(func(s *config.Service) { s.Alias = "db" })},
		"config command":      {config1(func(*config.Service) {}), config1(func(s *config.Service) { s.Command = []string{"x"} })},
		"config entrypoint":   {config1(func(*config.Service) {}), config1(func(s *config.Service) { s.Entrypoint = []string{"x"} })},
		"config variable":     {config1(func(*config.Service) {}), config1(func(s *config.Service) { s.Environment = []string{"A=2"} })},
		"job image":           {job1(func(*Job, *Service) {}), job1(func(j *Job, _ *Service) { j.Image = "alpine:1" })},
		"job pull policy":     {job1(func(*Job, *Service) {}), job1(func(j *Job, _ *Service) { j.PullPolicy = []string{"never"} })},
		"job user":            {job1(func(*Job, *Service) {}), job1(func(j *Job, _ *Service) { j.User = "7" })},
		"job group":           {job1(func(*Job, *Service) {}), job1(func(j *Job, _ *Service) { j.User = ":7" })},
		"no services":         {job1(func(*Job, *Service) {}), job1(func(j *Job, _ *Service) { j.Services = nil })},
		"service name":        {job1(func(*Job, *Service) {}), job1(func(_ *Job, s *Service) { s.Name = "redis:7" })},
		"service alias":       {job1(func(*Job, *Service) {}), job1(func(_ *Job, s *Service) { s.Aliases = []string{"db"} })},
		"service command":     {job1(func(*Job, *Service) {}), job1(func(_ *Job, s *Service) { s.Command = []string{"x"} })},
		"service entrypoint":  {job1(func(*Job, *Service) {}), job1(func(_ *Job, s *Service) { s.Entrypoint = []string{"x"} })},
		"service pull policy": {job1(func(*Job, *Service) {}), job1(func(_ *Job, s *Service) { s.PullPolicy = []string{"never"} })},
		"service user":        {job1(func(*Job, *Service) {}), job1(func(_ *Job, s *Service) { s.User = "7" })},
		"service variable":    {job1(func(*Job, *Service) {}), job1(func(_ *Job, s *Service) { s.Variables = map[string]string{"B": "1"} })},
		"from config vs. job": {config1(func(*config.Service) {}), job1(func(*Job, *Service) {})},
	} {
		t.Run(name, func(t *testing.T) {
			require.NotEqual(t, c[0].Hash(), c[1].Hash())
			require.NotZero(t, Differs(c[0], c[1]))
		})
	}
	require.Equal(t, 4, reflect.TypeFor[Job]().NumField(), "a field was added: add a case")
	require.Equal(t, 7, reflect.TypeFor[Service]().NumField(), "a field was added: add a case")
	require.Equal(t, 5, reflect.TypeFor[config.Service]().NumField(), "a field was added: add a case")
}

func TestTheValueOfAServicesVariableIsNoPartOfTheShape(t *testing.T) {
	r := load(t, "minimal")
	with := func(secret string) Shape {
		return shapeOf(t, r, Job{Services: []Service{{Name: "redis:8", Variables: map[string]string{"PASSWORD": secret}}}})
	}
	require.Equal(t, with("hunter2"), with("correct horse"))
}

// TestEveryFieldOfAShapeIsNamedAndLeftOutWhenEmpty: a field without a name of its own would be renamed by a refactoring, one
// that is written while it is empty would change all hashes with the release that adds it.
func TestEveryFieldOfAShapeIsNamedAndLeftOutWhenEmpty(t *testing.T) {
	old := map[string]bool{
		"Shape.protocol": true, "Shape.namespace": true, "Shape.image": true, "Shape.pull_policy": true,
		"Shape.helper_image": true, "Shape.helper_pull_policy": true, "Shape.builds_dir": true, "Shape.cache_dir": true,
		"ShapeService.name": true, "ShapeService.image": true, "ShapeService.pull_policy": true,
		"Variable.name": true, "Toleration.operator": true,
	}
	seen := map[reflect.Type]bool{}
	var walk func(reflect.Type)
	walk = func(typ reflect.Type) {
		for typ.Kind() == reflect.Slice || typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Map {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || seen[typ] {
			return
		}
		seen[typ] = true
		require.Equal(t, reflect.TypeFor[Shape]().PkgPath(), typ.PkgPath(), "a type of another module can change its JSON")
		for f := range typ.Fields() {
			name, option, _ := strings.Cut(f.Tag.Get("json"), ",")
			require.Regexp(t, `^[a-z_]+$`, name, "%s.%s", typ, f.Name)
			if !old[typ.Name()+"."+name] {
				want := "omitempty"
				if f.Type.Kind() == reflect.Struct {
					want = "omitzero"
				}
				require.Equal(t, want, option, "%s.%s", typ, f.Name)
			}
			walk(f.Type)
		}
	}
	walk(reflect.TypeFor[Shape]())
	require.Len(t, seen, 10)
}

func TestWhatIsTheSameHasTheSameHash(t *testing.T) {
	for name, change := range map[string]func(*config.Runner, *Job){
		"quantities in other units": func(r *config.Runner, _ *Job) {
			k := &r.Kubernetes
			k.CPURequest, k.CPULimit, k.MemoryRequest, k.MemoryLimit = "500m", "2", "536870912", "1Gi"
			k.EphemeralStorageLimit, k.HelperEphemeralStorageLimit, k.HelperEphemeralStorageRequest = "10Gi", "1000M", "1e8"
		},
		"no quantity of services in other units": func(r *config.Runner, _ *Job) { r.Kubernetes.ServiceCPULimit = "1000m" },
		"capabilities in another order, twice": func(r *config.Runner, _ *Job) {
			r.Kubernetes.CapAdd, r.Kubernetes.CapDrop = []string{"SETUID", "CHOWN", "SETUID"}, []string{"MKNOD"}
		},
		"the job names the image that it would get":  func(_ *config.Runner, j *Job) { j.Image = "registry.example.com:5000/team/golang:1.26" },
		"the job names the policy that it would get": func(_ *config.Runner, j *Job) { j.PullPolicy = []string{"never-heard-of"}[:0] },
		"the job asks for the first policy":          func(_ *config.Runner, j *Job) { j.PullPolicy = []string{"always"} },
		"a user that the configuration overrules":    func(_ *config.Runner, j *Job) { j.User = "7:7" },
		"a user that is no number":                   func(_ *config.Runner, j *Job) { j.User = "root" },
		"a service without a name":                   func(_ *config.Runner, j *Job) { j.Services = []Service{{}} },
		"labels and annotations that may not be set": func(r *config.Runner, _ *Job) {
			r.Kubernetes.PodLabels["Manager.Runner.GitLab.com/name"] = "x"
			r.Kubernetes.PodLabels["runner.gitlab.com/pod"] = "x"
			r.Kubernetes.PodAnnotations["karpenter.sh/do-not-disrupt"] = "x"
			r.Kubernetes.PodAnnotations["idlecount.dev/warmth"] = "x"
		},
		"a trailing slash": func(r *config.Runner, _ *Job) { r.BuildsDir += "/" },
		"empty for absent": func(r *config.Runner, _ *Job) {
			r.Kubernetes.Services = slices.Clone(r.Kubernetes.Services)
			r.Kubernetes.Services = append(r.Kubernetes.Services, config.Service{})
		},
		"proc mount in another case": func(r *config.Runner, _ *Job) { r.Kubernetes.BuildContainerSecurityContext.ProcMount = " DEFAULT" },
		"profiles in another case": func(r *config.Runner, _ *Job) {
			r.Kubernetes.PodSecurityContext.SeccompProfile.Type = "runtimedefault"
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, job := load(t, "full"), Job{}
			want := shapeOf(t, r, job)
			change(&r, &job)
			got := shapeOf(t, r, job)
			require.Zero(t, Differs(want, got))
			require.Equal(t, want.Hash(), got.Hash())
		})
	}
}

func TestImagesAreOneWhereEveryKubeletTakesThemForOne(t *testing.T) {
	r := load(t, "minimal")
	hash := func(image string) string { return shapeOf(t, r, Job{Image: image}).Hash() }
	require.Equal(t, hash("alpine"), hash("alpine:latest"))
	require.Equal(t, hash("registry:5000/a"), hash("registry:5000/a:latest"))
	digest := "@sha256:" + strings.Repeat("0", 64)
	for _, different := range [][2]string{
		{"alpine", "alpine:3.22"},
		{"alpine", "docker.io/library/alpine:latest"}, // which registry is meant is the node's business
		{"alpine", "alpine" + digest},
		{"alpine:3.22", "alpine:3.22" + digest},
		{"registry:5000/a", "registry:5001/a"},
	} {
		require.NotEqual(t, hash(different[0]), hash(different[1]), different)
	}
	require.Equal(t, "alpine", shapeOf(t, r, Job{Image: "alpine"}).Image, "the pod has the image as written")
}

func TestEqualQuantitiesHaveOneText(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	text := func(q resource.Quantity) Resources {
		r, err := quantityKeys{cpuRequest: q.String(), memoryLimit: q.String(), ephemeralStorageLimit: q.String()}.resources()
		require.NoError(t, err)
		return r
	}
	for range 2000 {
		milli := random.Int64N(1 << random.IntN(50))
		if random.IntN(2) == 0 {
			milli *= 1000
		}
		var seen []Resources
		for _, format := range []resource.Format{resource.DecimalSI, resource.BinarySI, resource.DecimalExponent} {
			seen = append(seen, text(*resource.NewMilliQuantity(milli, format)))
		}
		require.Equal(t, seen[0], seen[1], milli)
		require.Equal(t, seen[0], seen[2], milli)
		more := text(*resource.NewMilliQuantity(milli+1, resource.DecimalSI))
		require.NotEqual(t, seen[0].Requests.CPU, more.Requests.CPU)
		require.NotEqual(t, seen[0].Limits.Memory, more.Limits.Memory)
		back := resource.MustParse(seen[0].Limits.Memory)
		require.Zero(t, back.Cmp(*resource.NewMilliQuantity(milli, resource.DecimalSI)), "the pod gets what was written")
	}
}

func TestDifference(t *testing.T) {
	r := base(t)
	for name, c := range map[string]struct {
		change func(*config.Runner, *Job)
		want   Difference
		text   string
	}{
		"nothing":        {func(*config.Runner, *Job) {}, Difference{}, "none"},
		"the image":      {func(_ *config.Runner, j *Job) { j.Image = "alpine:3.21" }, Difference{Image: true}, "image"},
		"a request":      {func(r *config.Runner, _ *Job) { r.Kubernetes.CPURequest = "1" }, Difference{Resources: true}, "resources"},
		"a helper limit": {func(r *config.Runner, _ *Job) { r.Kubernetes.HelperMemoryLimit = "1Gi" }, Difference{Resources: true}, "resources"},
		"a service of the job": {
			func(_ *config.Runner, j *Job) { j.Services = []Service{{Name: "postgres"}} }, Difference{Services: true}, "services",
		},
		"the size of services": {func(r *config.Runner, _ *Job) { r.Kubernetes.ServiceCPULimit = "1" }, Difference{Services: true}, "services"},
		"the user":             {func(_ *config.Runner, j *Job) { j.User = "1000" }, Difference{User: true}, "user"},
		"an image that is pulled otherwise": {
			func(_ *config.Runner, j *Job) { j.Image = "alpine" }, Difference{Image: true, PullPolicy: true}, "image, pull policy",
		},
		"all": {func(r *config.Runner, j *Job) {
			*j = Job{Image: "alpine:3.21", User: "1", Services: []Service{{Name: "postgres"}}}
			r.Kubernetes.MemoryRequest, r.Kubernetes.ServiceAccount = "1Gi", "other"
		}, Difference{Image: true, Resources: true, Services: true, User: true, Other: true}, "image, resources, services, user, other settings"},
	} {
		t.Run(name, func(t *testing.T) {
			changed, job := base(t), Job{}
			c.change(&changed, &job)
			a, b := shapeOf(t, r, Job{}), shapeOf(t, changed, job)
			require.Equal(t, c.want, Differs(a, b))
			require.Equal(t, c.want, Differs(b, a))
			require.Equal(t, c.text, Differs(a, b).String())
			require.Equal(t, c.want == Difference{}, a.Hash() == b.Hash())
		})
	}
}

func TestShapeOfNamesWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*config.Runner, *Job)
		want   string
		job    bool
	}{
		"no image at all": {func(r *config.Runner, _ *Job) { r.Kubernetes.Image = "" },
			"runners[0].kubernetes.image: neither the job nor the configuration names an image", false},
		"no helper image": {func(r *config.Runner, _ *Job) { r.Kubernetes.HelperImage = "" }, "runners[0].kubernetes.helper_image: not set", false},
		"a variable in an image": {func(r *config.Runner, _ *Job) { r.Kubernetes.HelperImage = "helper:$CI_RUNNER_VERSION" },
			`runners[0].kubernetes.helper_image: "helper:$CI_RUNNER_VERSION" holds a variable, but an idle pod is made before its job is known; write the image in full`, false},
		"a variable in the image of a service": {func(r *config.Runner, _ *Job) { r.Kubernetes.Services = []config.Service{{Name: "$X"}} },
			`runners[0].kubernetes.services[0].name: "$X" holds a variable, but an idle pod is made before its job is known; write the image in full`, false},
		"a quantity": {func(r *config.Runner, _ *Job) { r.Kubernetes.HelperMemoryLimit = "lots" },
			`runners[0].kubernetes.helper_memory_limit: "lots" is not a quantity such as 500m or 1Gi: `, false},
		"a pull policy": {func(r *config.Runner, _ *Job) { r.Kubernetes.PullPolicy = config.StringOrList{"Always"} },
			`runners[0].kubernetes.pull_policy: unknown pull policy "Always"; use always, if-not-present or never`, false},
		"a pull policy of the job": {func(_ *config.Runner, j *Job) { j.PullPolicy = []string{"sometimes"} },
			`pull_policy: unknown pull policy "sometimes"; use always, if-not-present or never`, true},
		"a pull policy that the runner doesn't allow": {func(r *config.Runner, j *Job) {
			r.Kubernetes.PullPolicy, j.PullPolicy = config.StringOrList{"always"}, []string{"never", "if-not-present"}
		}, "pull_policy: the job asks for [Never IfNotPresent], the runner allows [Always] for alpine:3.22", true},
		"an alias of the configuration": {func(r *config.Runner, _ *Job) { r.Kubernetes.Services = []config.Service{{Name: "a", Alias: "b A_"}} },
			`runners[0].kubernetes.services[0].alias: "A_" can't be a host name: `, false},
		"an alias of the job": {func(_ *config.Runner, j *Job) {
			j.Services = []Service{{Name: "a"}, {Name: "a", Aliases: []string{"A_"}}}
		},
			`services[1].alias: "A_" can't be a host name: `, true},
		"a variable without a value": {func(r *config.Runner, _ *Job) {
			r.Kubernetes.Services = []config.Service{{Name: "a", Environment: []string{"A=1", "B"}}}
		}, `runners[0].kubernetes.services[0].environment[1]: "B" is not NAME=value`, false},
		"a label's key": {func(r *config.Runner, _ *Job) { r.Kubernetes.PodLabels = map[string]string{"a b": "c"} },
			`runners[0].kubernetes.pod_labels: "a b" can't be a key: `, false},
		"an annotation's key": {func(r *config.Runner, _ *Job) { r.Kubernetes.PodAnnotations = map[string]string{"a/b/c": "c"} },
			`runners[0].kubernetes.pod_annotations: "a/b/c" can't be a key: `, false},
		"a profile": {func(r *config.Runner, _ *Job) {
			r.Kubernetes.HelperContainerSecurityContext.SeccompProfile.Type = "none"
		},
			`runners[0].kubernetes.helper_container_security_context.seccomp_profile.type: "none" is no type of profile; use RuntimeDefault, Localhost or Unconfined`, false},
		"a proc mount": {func(r *config.Runner, _ *Job) { r.Kubernetes.BuildContainerSecurityContext.ProcMount = "some" },
			`runners[0].kubernetes.build_container_security_context.proc_mount: "some" is not known; use default or unmasked`, false},
		"a relative folder": {func(r *config.Runner, _ *Job) { r.BuildsDir = "builds" },
			`runners[0].builds_dir: "builds" is not an absolute path below /`, false},
		"a folder over the entrypoint's": {func(r *config.Runner, _ *Job) { r.CacheDir = "/idlecount/cache" },
			`runners[0].cache_dir: "/idlecount/cache" holds idlecount's own files in a pod (/idlecount); choose another`, false},
	} {
		t.Run(name, func(t *testing.T) {
			r, job := load(t, "minimal"), Job{}
			c.change(&r, &job)
			_, err := ShapeOf(r, job)
			require.ErrorContains(t, err, c.want)
			var jobError *JobError
			require.Equal(t, c.job, fmt.Sprintf("%T", err) == fmt.Sprintf("%T", jobError), "who is to blame: %T", err)
		})
	}
}
