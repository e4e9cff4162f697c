package config

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/BurntSushi/toml"
)

// ConvertMachine reads the [runners.machine] tables of config.toml files, which are those of the docker+machine executor,
// and writes a file with what they mean in idlecount's keys, to be given beside the first one. The notes say what has no
// equivalent, or another meaning. The error holds every Problem; that no file has such a table is one.
func ConvertMachine(paths []string) (text string, notes []Problem, err error) {
	files, err := readAll(paths)
	if err != nil {
		return "", nil, err
	}
	return convertMachine(files)
}

// machine is [runners.machine]. Its keys match in any case, as they do in GitLab Runner.
type machine struct {
	IdleCount        int           `toml:"IdleCount"`       // of machines, each for one job at a time
	IdleScaleFactor  float64       `toml:"IdleScaleFactor"` // of those in use; 0 = off
	IdleCountMin     int           `toml:"IdleCountMin"`    // with IdleScaleFactor only
	IdleTime         int           `toml:"IdleTime"`        // seconds
	OffPeakPeriods   []string      `toml:"OffPeakPeriods"`
	OffPeakTimezone  string        `toml:"OffPeakTimezone"`
	OffPeakIdleCount int           `toml:"OffPeakIdleCount"`
	OffPeakIdleTime  int           `toml:"OffPeakIdleTime"` // seconds
	Autoscaling      []autoscaling `toml:"autoscaling"`
}

// autoscaling is one [[runners.machine.autoscaling]]. The last that matches wins; a key that is absent in it is 0, and
// isn't inherited.
type autoscaling struct {
	Periods         []string `toml:"Periods"`
	Timezone        string   `toml:"Timezone"`
	IdleCount       int      `toml:"IdleCount"`
	IdleScaleFactor float64  `toml:"IdleScaleFactor"`
	IdleCountMin    int      `toml:"IdleCountMin"`
	IdleTime        int      `toml:"IdleTime"`
}

// The file that is written.
type (
	convertedFile struct {
		Runners []convertedRunner `toml:"runners"`
	}
	convertedRunner struct {
		Name       string              `toml:"name"`
		Kubernetes convertedKubernetes `toml:"kubernetes"`
	}
	convertedKubernetes struct {
		Image string `toml:"image,omitempty"`
		convertedValues
		Policies []convertedPolicy `toml:"idle_policy"`
	}
	convertedPolicy struct {
		Periods  []string `toml:"periods"`
		Timezone string   `toml:"timezone,omitempty"`
		convertedValues
	}
	convertedValues struct {
		IdleCount        int      `toml:"idle_count"`
		IdleTime         string   `toml:"idle_time,omitempty"`
		ScaleFactor      *float64 `toml:"scale_factor"`
		ScaleFactorLimit *int     `toml:"scale_factor_limit"`
	}
)

func convertMachine(files []file) (string, []Problem, error) {
	var out convertedFile
	var notes, problems []Problem
	for _, f := range files {
		tables, _, problem := parse(f)
		if problem != nil {
			problems = append(problems, *problem)
		}
		for _, t := range tables {
			keys, ok := child(t.keys, "machine")
			if !ok {
				continue
			}
			c := &converter{entry: &entry{sources: map[string]source{}}, keys: keys}
			runner := c.runner(t)
			out.Runners = append(out.Runners, runner)
			problems = append(problems, c.badValues...)
			notes = append(notes, c.notes...)
		}
	}
	if len(problems) == 0 && len(out.Runners) == 0 {
		problems = append(problems, Problem{File: files[0].path, Message: "has no [runners.machine] table, so there is nothing to convert"})
	}
	if len(problems) > 0 {
		return "", nil, errorOf(problems)
	}
	var text bytes.Buffer
	if err := toml.NewEncoder(&text).Encode(out); err != nil {
		return "", nil, fmt.Errorf("write the converted file: %w", err)
	}
	return text.String(), sorted(notes), nil
}

// converter converts the table of one runner.
type converter struct {
	*entry // of the table, so that paths are relative to it
	keys   map[string]any
	notes  []Problem
}

func (c *converter) note(key, format string, args ...any) {
	c.notes = append(c.notes, c.at(key, format, args...))
}

func (c *converter) runner(t table) convertedRunner {
	d := decoder{source: source{file: t.file, root: t.root + ".machine"}, entry: c.entry}
	d.remember("")
	var m machine
	d.table("", reflect.ValueOf(&m).Elem(), c.keys)
	c.bounds("", m.IdleCount, m.IdleCountMin, m.IdleTime, m.IdleScaleFactor)
	c.bounds("OffPeak", m.OffPeakIdleCount, 0, m.OffPeakIdleTime, 0)

	var r convertedRunner
	r.Name, _ = t.keys["name"].(string)
	if r.Name == "" {
		c.note("", "the runner has no name: give it one, here and in config.toml, so that the two files can meet")
	}
	r.Kubernetes.Image = c.image(t)
	scales := m.IdleScaleFactor > 0
	for _, a := range m.Autoscaling {
		scales = scales || a.IdleScaleFactor > 0
	}
	r.Kubernetes.convertedValues = c.values("", scales, machine{
		IdleCount: m.IdleCount, IdleScaleFactor: m.IdleScaleFactor, IdleCountMin: m.IdleCountMin, IdleTime: m.IdleTime,
	})
	for i, a := range m.Autoscaling {
		prefix := fmt.Sprintf("autoscaling[%d]", i)
		c.bounds(prefix+".", a.IdleCount, a.IdleCountMin, a.IdleTime, a.IdleScaleFactor)
		values := c.values(prefix+".", scales, machine{
			IdleCount: a.IdleCount, IdleScaleFactor: a.IdleScaleFactor, IdleCountMin: a.IdleCountMin, IdleTime: a.IdleTime,
		})
		c.policy(&r.Kubernetes, prefix+".Periods", a.Periods, a.Timezone, values)
	}
	c.offPeak(&r.Kubernetes, m, scales)
	c.general(m)
	return r
}

// values are those of the table, or of one period. Idle machines are at most IdleCount, and with a scale factor only as
// many as those in use times the factor ask for, at least IdleCountMin and one.
func (c *converter) values(prefix string, scales bool, m machine) convertedValues {
	v := convertedValues{IdleCount: m.IdleCount, IdleTime: c.idleTime(prefix, m.IdleTime, m.IdleCount)}
	if !scales {
		return v
	}
	v.ScaleFactor, v.ScaleFactorLimit = new(float64), new(int) // 0 where another one would be inherited
	if m.IdleScaleFactor > 0 && m.IdleCount > 0 {
		v.IdleCount = min(max(m.IdleCountMin, 1), m.IdleCount)
		*v.ScaleFactor, *v.ScaleFactorLimit = m.IdleScaleFactor, m.IdleCount
		c.note(prefix+"IdleScaleFactor", "was rounded down to whole machines; scale_factor is rounded up, so there may be one pod more")
	}
	return v
}

// shortIdleTime is how short an idle_time is worth a note, since pods that are wanted are replaced that often too.
const shortIdleTime = 10 * time.Minute

func (c *converter) idleTime(prefix string, seconds, count int) string {
	d := time.Duration(seconds) * time.Second
	switch {
	case d == 0:
		c.note(prefix+"IdleTime", "is 0 or not set, so machines that were too many went at once; idle_time is left out, and they go after %s, "+
			"or what [runners.kubernetes] says: it is also how long a pod that is wanted waits before a fresh one takes its place", shortest(DefaultIdleTime))
		return ""
	case d < shortIdleTime && count > 0:
		c.note(prefix+"IdleTime", "is %s: it is also how long a pod that is wanted waits before a fresh one takes its place, so a longer idle_time "+
			"makes fewer pods", shortest(d))
	}
	return shortest(d)
}

// shortest writes 30m for 30m0s.
func shortest(d time.Duration) string {
	text := d.String()
	if s, ok := strings.CutSuffix(text, "m0s"); ok {
		text = s + "m"
	}
	if s, ok := strings.CutSuffix(text, "h0m"); ok {
		text = s + "h"
	}
	return text
}

// policy adds what one block means, unless none of its periods can be written.
func (c *converter) policy(k *convertedKubernetes, key string, periods []string, timezone string, values convertedValues) {
	p := convertedPolicy{Timezone: timezone, convertedValues: values}
	for i, spec := range periods {
		at := fmt.Sprintf("%s[%d]", key, i)
		period, note, err := fiveFields(spec, timezone)
		if note != "" {
			c.note(at, "%s", note)
		}
		if err != nil {
			c.note(at, "is left out: %s", err)
			continue
		}
		p.Periods = append(p.Periods, period)
	}
	if len(periods) == 0 {
		c.note(key, "is empty, so the block was never in force and is left out")
		return
	}
	if len(p.Periods) == 0 {
		c.note(parent(key), "is left out: no period of it can be written as one of idlecount's")
		return
	}
	k.Policies = append(k.Policies, p)
}

// offPeak converts the keys that were there before [[runners.machine.autoscaling]].
func (c *converter) offPeak(k *convertedKubernetes, m machine, scales bool) {
	if len(m.OffPeakPeriods) == 0 {
		return
	}
	if len(m.Autoscaling) > 0 {
		c.note("OffPeakPeriods", "is left out, with the other OffPeak keys: beside [[runners.machine.autoscaling]] it has no effect")
		return
	}
	c.note("OffPeakPeriods", "was taken away from GitLab Runner in version 14; the policy is what it meant before")
	values := c.values("OffPeak", scales, machine{IdleCount: m.OffPeakIdleCount, IdleTime: m.OffPeakIdleTime})
	c.policy(k, "OffPeakPeriods", m.OffPeakPeriods, m.OffPeakTimezone, values)
}

// image is the default image of jobs, where [runners.kubernetes] has none yet.
func (c *converter) image(t table) string {
	docker, _ := child(t.keys, "docker")
	kubernetes, _ := child(t.keys, "kubernetes")
	if len(docker) > 0 {
		c.note("", "[runners.docker] is not converted but for its image: write what else jobs need into [runners.kubernetes]")
	}
	if image, _ := kubernetes["image"].(string); image != "" {
		return ""
	}
	image, _ := docker["image"].(string)
	if strings.Contains(image, "$") {
		return ""
	}
	return image
}

// general says what is another world with pods.
func (c *converter) general(m machine) {
	most := m.IdleCount
	for _, a := range m.Autoscaling {
		most = max(most, a.IdleCount)
	}
	if most > 0 {
		c.note("IdleCount", "counted machines for any job; idle_count is pods for each image of idle_images. "+
			"A job was asked for only if a machine was idle; a job that finds no warm pod starts in a new one")
	}
	for _, key := range []struct{ name, why string }{
		{"MaxBuilds", "has no equivalent: a pod has one job and is never used again"},
		{"MaxGrowthRate", "has no equivalent: the manager makes pods in batches that grow as long as they succeed"},
		{"MaxRemovalAttempts", "has no equivalent: what can't be deleted is tried again"},
		{"MachineDriver", "has no equivalent: nodes come from the cluster, and from its autoscaler if it has one"},
		{"MachineName", "has no equivalent: pods are named after their pool"},
		{"MachineOptions", "has no equivalent: where pods run is said by node_selector and node_tolerations, how large they are by cpu_request and memory_request"},
		{"MachineOptionsWithName", "has no equivalent: where pods run is said by node_selector and node_tolerations"},
	} {
		for written := range c.keys {
			if strings.EqualFold(written, key.name) && !isEmpty(c.keys[written]) {
				c.note(written, "%s", key.why)
			}
		}
	}
}

// bounds refuses numbers that can't be meant.
func (c *converter) bounds(prefix string, count, least, seconds int, factor float64) {
	for _, n := range []struct {
		key       string
		value, to int
	}{{"IdleCount", count, maxIdleCount}, {"IdleCountMin", least, maxIdleCount}, {"IdleTime", seconds, maxSeconds}} {
		if n.value < 0 || n.value > n.to {
			c.badValues = append(c.badValues, c.at(prefix+n.key, "%d is not a number from 0 to %d", n.value, n.to))
		}
	}
	if !(factor >= 0 && factor <= maxScaleFactor) {
		c.badValues = append(c.badValues, c.at(prefix+"IdleScaleFactor", "%v is not a number from 0 to %d", factor, maxScaleFactor))
	}
}

// maxSeconds is a year: more was never meant.
const maxSeconds = 366 * 24 * 60 * 60

// child is a table within a table, whose name matches in any case.
func child(keys map[string]any, name string) (map[string]any, bool) {
	for _, key := range sortedKeys(keys) {
		if strings.EqualFold(key, name) {
			t, ok := keys[key].(map[string]any)
			return t, ok
		}
	}
	return nil, false
}
