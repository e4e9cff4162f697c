package factory

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"idlecount.dev/idlecount/config"
)

// maxLabelValue is the longest label value and DNS label that the API server takes, in bytes.
const maxLabelValue = 63

// RunnerLabel is the value of LabelRunner: the runner's short token made a valid label value.
func RunnerLabel(r config.Runner) string { return labelValue(r.ShortToken()) }

// PoolName is the name of the pool of a runner and a shape, and of its anchor: a valid DNS label and label value.
func PoolName(r config.Runner, s Shape) string {
	return dnsLabel(r.ShortToken(), maxLabelValue-1-hashLength) + "-" + s.Hash()
}

// PodName is the name of a pool's pod; suffix is the caller's random part, of lower-case letters and digits.
func PodName(pool, suffix string) string { return podName(pool, suffix) }

// JobPodName is the name of the pod of a cold job. The suffix keeps a job's second try from meeting its first one's pod
// while that is still ending.
func JobPodName(r config.Runner, jobID, suffix string) string {
	return podName(dnsLabel(r.ShortToken(), maxLabelValue)+"-job-"+dnsLabel(jobID, maxLabelValue), suffix)
}

// podName joins the two within the length of a host name, which a pod's name is, too; the suffix stays whole.
func podName(prefix, suffix string) string {
	prefix = strings.TrimRight(prefix[:min(len(prefix), maxLabelValue-1-len(suffix))], "-")
	return prefix + "-" + suffix
}

// labelValue makes a valid label value of any text: what a label can't hold becomes "_"; a text that had to be changed at
// its ends or cut gets a hash of the whole, so that two texts never meet in one value unseen.
func labelValue(text string) string {
	valid := trimLabel(strings.Map(labelRune, text))
	if len(valid) <= maxLabelValue && len(valid) == len(text) {
		return valid
	}
	suffix := shortHash([]byte(text))
	valid = trimLabel(valid[:min(len(valid), maxLabelValue-1-len(suffix))])
	if valid == "" {
		return suffix
	}
	return valid + "-" + suffix
}

func trimLabel(s string) string { return strings.Trim(s, "-_.") }

func labelRune(c rune) rune {
	switch {
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_', c == '.':
		return c
	default:
		return '_'
	}
}

// dnsLabel makes text a valid DNS label of at most length bytes.
func dnsLabel(text string, length int) string {
	lower := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' {
			return c
		}
		return '-'
	}, strings.ToLower(text))
	lower = strings.Trim(lower, "-")
	lower = strings.Trim(lower[:min(len(lower), length)], "-")
	if lower == "" {
		return "runner"
	}
	return lower
}

// hashLength is the length of a hash in names and labels, in hex digits: enough that the few shapes of one runner never
// meet, short enough for a name that people read.
const hashLength = 10

func shortHash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])[:hashLength]
}
