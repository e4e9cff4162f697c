package config

import (
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"
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
		if d.speller.judges(key) {
			message = unknownInKubernetes(key)
		}
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
	if looksOwn(folded) {
		return unknownKey(key, ownKeys())
	}
	ours, d := closest(key, ownKeys())
	_, theirs := closest(key, gitlabKeys())
	if d <= tolerance(key) && d < theirs {
		return unknownKey(key, []string{ours})
	}
	return ""
}

// looksOwn says whether a key, in lower case, can only be meant for idlecount.
func looksOwn(key string) bool {
	return strings.HasPrefix(key, "idle") || strings.HasPrefix(key, "scale_factor")
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

// maxSlips is how many slips of the finger a name may have at most to be still taken for another.
const maxSlips = 3

// tolerance is how many slips of the finger a name of this length may have to be still taken for another.
func tolerance(name string) int { return min(maxSlips, max(1, len(name)/3)) }

// closest returns the name with the smallest distance, the first of several. Names that are further away than any tolerance
// don't count: a file may have many keys, and most are known not to be near by their length alone.
func closest(name string, known []string) (string, int) {
	best, least := "", 1<<30
	folded, squashed := fold(name), squash(name)
	for _, k := range known {
		for _, pair := range [][2]string{{folded, fold(k)}, {squashed, squash(k)}} {
			if gap := utf8.RuneCountInString(pair[0]) - utf8.RuneCountInString(pair[1]); max(gap, -gap) > maxSlips {
				continue
			}
			if d := distance(pair[0], pair[1]); d < least {
				best, least = k, d
			}
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
	var beforeLast, last, row [most + 1]int // of the table of distances of all beginnings of a and b
	for j := range rb {
		row[j+1] = j + 1
	}
	for i := 1; i <= len(ra); i++ {
		beforeLast, last, row = last, row, beforeLast
		row[0] = i
		for j := 1; j <= len(rb); j++ {
			replace := 1
			if ra[i-1] == rb[j-1] {
				replace = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+replace)
			if i > 1 && j > 1 && ra[i-1] == rb[j-2] && ra[i-2] == rb[j-1] {
				row[j] = min(row[j], beforeLast[j-2]+1)
			}
		}
	}
	return row[len(rb)]
}
