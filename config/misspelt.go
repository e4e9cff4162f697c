package config

import (
	"fmt"
	"slices"
	"strings"
)

// misspelling is a key that nothing reads, and that looks like one that something does.
type misspelling struct {
	Problem
	meant string
}

// speller knows the keys that there are. Finding the nearest of them takes a while, which a file of a hundred thousand
// unknown keys must not multiply.
type speller struct {
	known keyTree // of [[runners]]
	left  int     // how many keys may still be compared
}

func newSpeller() *speller { return &speller{known: runnerTree(), left: 1000} }

func (s *speller) spend() bool {
	s.left--
	return s.left >= 0
}

// judges says whether a key of [runners.kubernetes] that has no field may be a mistake.
func (s *speller) judges(key string) bool {
	key = strings.ToLower(key)
	_, known := s.known["kubernetes"][key]
	return looksOwn(key) || !known && s.spend()
}

// misspelt finds the keys of a table, and of those in it, that are near a known one and aren't it. One that is near none may
// be of a newer GitLab Runner, and is nobody's mistake.
func (s *speller) misspelt(file, path string, keys map[string]any, known keyTree) []misspelling {
	var list []misspelling
	names := sortedKeys(known)
	for _, key := range sortedKeys(keys) {
		at := join(path, quoteKey(key))
		inner, ok := known[strings.ToLower(key)]
		if !ok {
			if !s.spend() {
				continue
			}
			if near, ok := misplaced(key, known); ok {
				message := "belongs into [runners.kubernetes.autoscaler]; here nothing reads it"
				if near != key {
					message = "unknown key, which nothing reads: did you mean " + near + " of [runners.kubernetes.autoscaler]?"
				}
				list = append(list, misspelling{Problem{File: file, Path: at, Message: message}, near})
			} else if near, ok := similar(key, names); ok {
				list = append(list, misspelling{Problem{File: file, Path: at, Message: "unknown key, which nothing reads: did you mean " + near + "?"}, near})
			}
			continue
		}
		if inner == nil {
			continue
		}
		if table, ok := keys[key].(map[string]any); ok {
			list = append(list, s.misspelt(file, at, table, inner)...)
			continue
		}
		tables, _ := tablesOf(keys[key])
		for i, table := range tables {
			list = append(list, s.misspelt(file, fmt.Sprintf("%s[%d]", at, i), table, inner)...)
		}
	}
	return list
}

// misplaced finds the key of the autoscaler's table, if there is one in this one, that was probably meant. Most of its keys are
// about pause pods by their names.
func misplaced(key string, known keyTree) (near string, ok bool) {
	if !strings.Contains(strings.ToLower(key), "pause_pod") {
		return "", false
	}
	return similar(key, sortedKeys(known["autoscaler"]))
}

// similar finds the name that was probably meant: one that is near, or has one more word at its end.
func similar(key string, names []string) (string, bool) {
	if near, ok := nearest(key, names); ok {
		return near, true
	}
	for _, name := range names {
		word, ok := strings.CutPrefix(name, fold(key)+"_")
		if ok && !strings.Contains(word, "_") && len(key) > 3*len(word) {
			return name, true
		}
	}
	return "", false
}

// misspeltRunners finds [[runner]], and [runner.kubernetes], at the top of a file: the runner, or its table, would not be there.
func misspeltRunners(file string, root map[string]any) []Problem {
	var list []Problem
	for _, key := range sortedKeys(root) {
		if near, ok := nearest(key, []string{"runners"}); ok && !strings.EqualFold(key, near) {
			list = append(list, Problem{File: file, Path: quoteKey(key),
				Message: "unknown key, which nothing reads: did you mean runners, as in [[runners]] and [runners.kubernetes]?"})
		}
	}
	return list
}

// spelling are the warnings about misspelt keys of an entry, but for those that are errors already. Of a runner that isn't
// for idlecount only the table is looked at that would make it so.
func (e *entry) spelling() []Problem {
	var list []Problem
	for _, m := range e.misspelt {
		known := slices.ContainsFunc(e.unknown, func(p Problem) bool { return p.File == m.File && p.Path == m.Path })
		ours := e.runner.Managed() || e.runner.Executor == ExecutorCustom || m.meant == "kubernetes"
		if ours && !known {
			list = append(list, m.Problem)
		}
	}
	return list
}
