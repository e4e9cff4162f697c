package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// entry is a runner while it is put together from one or more files.
type entry struct {
	runner    Runner
	sources   map[string]source // where each key that is set was set last, by its path below the entry
	badValues []Problem         // values that can't be taken
	unknown   []Problem         // keys that are ours by their look, and aren't
	misspelt  []misspelling     // keys that are near a known one
	custom    customTable
}

// source is an entry in a file: where a key stands.
type source struct {
	file string
	root string // e.g. "runners[0]"
}

// at makes a problem of a key, which is "" for the entry itself. A key that isn't set is looked for where the nearest
// table around it stands.
func (e *entry) at(key, format string, args ...any) Problem {
	path := key
	for {
		if s, ok := e.sources[path]; ok {
			return Problem{File: s.file, Path: join(s.root, key), Message: fmt.Sprintf(format, args...)}
		}
		if path == "" {
			return Problem{Path: key, Message: fmt.Sprintf(format, args...)}
		}
		path = parent(path)
	}
}

// isSet says whether a key is in any file, whatever its value.
func (e *entry) isSet(key string) bool {
	_, ok := e.sources[key]
	return ok
}

// merge puts the entries of all files together. Those of the first file make the runners; those of later files are found
// by name, since an index would silently mean another runner once somebody inserts one.
func merge(files [][]table) ([]*entry, []Problem) {
	var entries []*entry
	var problems []Problem
	speller := newSpeller()
	for _, t := range files[0] {
		e := &entry{runner: newRunner(t.root), sources: map[string]source{"": {t.file, t.root}}}
		e.add(t, speller)
		entries = append(entries, e)
	}
	for _, tables := range files[1:] {
		seen := map[*entry]string{}
		for _, t := range tables {
			name, _ := t.keys["name"].(string)
			e, message := find(entries, name)
			if e != nil && seen[e] != "" {
				message = fmt.Sprintf("%q is the name of %s of this file too: one entry must hold all keys", name, seen[e])
			}
			if message != "" {
				problems = append(problems, Problem{File: t.file, Path: t.root + ".name", Message: message})
				continue
			}
			seen[e] = t.root
			e.add(t, speller)
		}
	}
	return entries, problems
}

// find looks for the one runner that a later file means.
func find(entries []*entry, name string) (*entry, string) {
	if name == "" {
		return nil, "is missing: an entry of a second file needs the name of the runner that it adds to"
	}
	var found *entry
	var names []string
	for _, e := range entries {
		names = append(names, e.runner.Name)
		if e.runner.Name != name {
			continue
		}
		if found != nil {
			return nil, fmt.Sprintf("two runners are named %q (%s and %s): give them different names, so that this file can mean one",
				name, found.runner.Path, e.runner.Path)
		}
		found = e
	}
	if found == nil {
		message := fmt.Sprintf("no earlier file has a runner named %q", name)
		if near, ok := nearest(name, names); ok {
			return nil, message + fmt.Sprintf(": did you mean %q?", near)
		}
		names = slices.DeleteFunc(names, func(s string) bool { return s == "" })
		if len(names) == 0 {
			return nil, message + ": none there has a name"
		}
		return nil, message + ": there are " + quoteAll(names)
	}
	return found, ""
}

// add reads an entry of one file over what is there.
func (e *entry) add(t table, speller *speller) {
	d := decoder{source: source{file: t.file, root: t.root}, entry: e, speller: speller}
	d.table("", reflect.ValueOf(&e.runner).Elem(), t.keys)
	for _, key := range sortedKeys(t.keys) {
		if strings.EqualFold(key, "custom") {
			d.value("custom", quoteKey(key), reflect.ValueOf(&e.custom).Elem(), t.keys[key])
		}
	}
	e.misspelt = append(e.misspelt, speller.misspelt(t.file, t.root, t.keys, speller.known)...)
	e.runner.HasKubernetes = e.runner.HasKubernetes || e.isSet("kubernetes")
	e.runner.HasIdle = slices.ContainsFunc(ownKeys(), func(key string) bool { return e.isSet("kubernetes." + key) })
}

func join(root, key string) string {
	if key == "" || strings.HasPrefix(key, "[") {
		return root + key
	}
	if root == "" {
		return key
	}
	return root + "." + key
}

// parent cuts the last element off a path. A quoted element may hold dots and brackets.
func parent(path string) string {
	if strings.HasSuffix(path, `"`) {
		if i := strings.LastIndex(path, `."`); i >= 0 {
			return path[:i]
		}
	}
	return path[:max(0, strings.LastIndexAny(path, ".["))]
}

func quoteAll(names []string) string {
	quoted := make([]string, 0, len(names))
	for _, n := range names {
		quoted = append(quoted, fmt.Sprintf("%q", n))
	}
	return strings.Join(quoted, ", ")
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
