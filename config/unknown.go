package config

import (
	"reflect"
	"slices"
	"strings"
)

// unknown judges a key that has no field. Within our own tables that is a mistake; in [runners.kubernetes] where it looks
// like one of ours; anywhere else it is GitLab's affair, of this version or a later one.
func (d decoder) unknown(path, key string, value any, table reflect.Type) {
	at := join(path, quoteKey(key))
	var message string
	switch table {
	case reflect.TypeFor[IdlePolicy](), reflect.TypeFor[IdleImage]():
		message = unknownKey(key, tags(table))
	case reflect.TypeFor[Kubernetes]():
		if !isEmpty(value) {
			d.remember(join(path, strings.ToLower(key))) // for the warnings about what isn't honoured
		}
		message = unknownInKubernetes(key)
	case reflect.TypeFor[Runner]():
		if slices.Contains(ownKeys(), key) {
			message = "belongs into [runners.kubernetes]; here nothing reads it"
		}
	}
	if message != "" {
		d.entry.unknown = append(d.entry.unknown,
			Problem{File: d.source.file, Path: join(d.source.root, at), Message: message})
	}
}

func unknownInKubernetes(key string) string {
	folded := strings.ToLower(key)
	if slices.Contains(gitlabKeys(), folded) {
		return ""
	}
	if strings.HasPrefix(folded, "idle") || strings.HasPrefix(folded, "scale_factor") {
		return unknownKey(key, ownKeys())
	}
	ours, d := closest(key, ownKeys())
	_, theirs := closest(key, gitlabKeys())
	if d <= tolerance(key) && d < theirs {
		return unknownKey(key, []string{ours})
	}
	return ""
}

func unknownKey(key string, known []string) string {
	if near, ok := nearest(key, known); ok {
		return "unknown key: did you mean " + near + "?"
	}
	return "unknown key: idlecount's are " + strings.Join(slices.Sorted(slices.Values(known)), ", ")
}

// isEmpty says whether a value says nothing: config.toml files that `gitlab-runner register` wrote are full of these.
func isEmpty(value any) bool {
	switch v := value.(type) {
	case string:
		return v == ""
	case bool:
		return !v
	case int64:
		return v == 0
	case map[string]any:
		for _, element := range v {
			if !isEmpty(element) {
				return false
			}
		}
		return true
	case []any:
		return len(v) == 0
	case []map[string]any:
		return len(v) == 0
	}
	return false
}

// nearest finds the name that was probably meant.
func nearest(name string, known []string) (string, bool) {
	near, d := closest(name, known)
	return near, d <= tolerance(name)
}

// tolerance is how many slips of the finger a name of this length may have to be still taken for another.
func tolerance(name string) int { return min(3, max(1, len(name)/3)) }

// closest returns the name with the smallest distance, the first of several.
func closest(name string, known []string) (string, int) {
	best, least := "", 1<<30
	for _, k := range known {
		if d := min(distance(fold(name), fold(k)), distance(squash(name), squash(k))); d < least {
			best, least = k, d
		}
	}
	return best, least
}

func fold(s string) string   { return strings.ReplaceAll(strings.ToLower(s), "-", "_") }
func squash(s string) string { return strings.ReplaceAll(fold(s), "_", "") }

// distance counts the insertions, deletions, replacements and swaps of neighbours that make b of a (the restricted
// Damerau-Levenshtein distance). Names are cut to a length that no key has.
func distance(a, b string) int {
	const most = 100
	ra, rb := []rune(a), []rune(b)
	ra, rb = ra[:min(len(ra), most)], rb[:min(len(rb), most)]
	rows := make([][]int, len(ra)+1)
	for i := range rows {
		rows[i] = make([]int, len(rb)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(ra); i++ {
		for j := 1; j <= len(rb); j++ {
			replace := 1
			if ra[i-1] == rb[j-1] {
				replace = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+replace)
			if i > 1 && j > 1 && ra[i-1] == rb[j-2] && ra[i-2] == rb[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(ra)][len(rb)]
}
