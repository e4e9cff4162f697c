package config

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
)

// decoder reads the keys of one entry of one file into a runner, over what an earlier file left there: tables are merged
// key by key, everything else is replaced. Unlike toml.Decode it goes on after a value of a wrong type, so that all are
// reported, and remembers where each key stands.
type decoder struct {
	source  source
	entry   *entry
	speller *speller
	inList  bool
}

// table reads a TOML table into a struct. path is that of the table below the entry, "" for the entry.
func (d decoder) table(path string, into reflect.Value, keys map[string]any) {
	for _, key := range sortedKeys(keys) {
		at := join(path, quoteKey(key))
		field, tag, ok := fieldOf(into, key)
		if !ok {
			d.unknown(path, key, keys[key], into.Type())
			continue
		}
		if _, both := keys[tag]; both && tag != key {
			continue // another spelling of a key that is there as well
		}
		d.value(join(path, tag), at, field, keys[key])
	}
}

// value reads one value. path is the key's canonical path, at the path as it is spelt in the file.
func (d decoder) value(path, at string, into reflect.Value, value any) {
	if into.Kind() == reflect.Pointer && into.Type().Elem().Kind() == reflect.Struct && !into.Type().Implements(unmarshaler()) {
		if into.IsNil() {
			into.Set(reflect.New(into.Type().Elem()))
		}
		into = into.Elem()
	}
	if into.Kind() == reflect.Struct && !into.Addr().Type().Implements(unmarshaler()) {
		keys, ok := value.(map[string]any)
		if !ok {
			d.wrong(at, "must be a table, it is "+describe(value))
			return
		}
		d.remember(path)
		d.table(path, into, keys)
		return
	}
	if keys, ok := value.(map[string]any); ok && into.Kind() == reflect.Map {
		d.remember(path)
		d.textMap(path, into, keys)
		return
	}
	d.remember(path)
	fresh := reflect.New(into.Type()).Elem()
	if d.scalar(path, at, fresh, value) {
		into.Set(fresh)
	}
}

// textMap adds the texts of a TOML table to a map; node_selector, pod_labels and their like.
func (d decoder) textMap(path string, into reflect.Value, keys map[string]any) {
	if into.IsNil() {
		into.Set(reflect.MakeMap(into.Type()))
	}
	for _, key := range sortedKeys(keys) {
		at := join(path, quoteKey(key))
		d.remember(at)
		text, ok := keys[key].(string)
		if !ok {
			d.wrong(at, "must be text in quotes, it is "+describe(keys[key]))
			continue
		}
		into.SetMapIndex(reflect.ValueOf(key), reflect.ValueOf(text))
	}
}

// scalar reads what isn't merged: a single value, or a list. It reports false where the value doesn't fit.
func (d decoder) scalar(path, at string, into reflect.Value, value any) bool {
	if u, ok := reflect.TypeAssert[toml.Unmarshaler](into.Addr()); ok {
		if err := u.UnmarshalTOML(value); err != nil {
			d.wrong(at, err.Error())
			return false
		}
		return true
	}
	switch into.Kind() {
	case reflect.Pointer:
		into.Set(reflect.New(into.Type().Elem()))
		return d.scalar(path, at, into.Elem(), value)
	case reflect.Slice:
		return d.list(path, at, into, value)
	}
	wanted, ok := set(into, value)
	if ok {
		return true
	}
	message := "must be " + wanted
	if path != "token" { // it is never to be printed
		message += ", it is " + describe(value)
	}
	d.wrong(at, message)
	return false
}

// set sets a Go value to a TOML value of the same kind, or says what kind it must be.
func set(into reflect.Value, value any) (wanted string, ok bool) {
	switch into.Kind() {
	case reflect.String:
		s, ok := value.(string)
		into.SetString(s)
		return "text in quotes", ok
	case reflect.Bool:
		b, ok := value.(bool)
		into.SetBool(b)
		return "true or false", ok
	case reflect.Int, reflect.Int64:
		n, ok := value.(int64)
		into.SetInt(n)
		return "a whole number", ok
	case reflect.Float64:
		f, ok := value.(float64)
		if n, whole := value.(int64); whole {
			f, ok = float64(n), true
		}
		into.SetFloat(f)
		return "a number", ok
	case reflect.Map:
		return "a table", false
	default:
		panic("config: no TOML value goes into a " + into.Type().String()) // a mistake in a struct of ours
	}
}

// list reads a list of values or of tables. An element that doesn't fit is reported and left at its zero value.
func (d decoder) list(path, at string, into reflect.Value, value any) bool {
	if into.Type().Elem().Kind() == reflect.Struct {
		tables, ok := tablesOf(value)
		if !ok {
			d.wrong(at, "must be a list of tables, it is "+describe(value)+": write it with double brackets, [["+header(path)+"]]")
			return false
		}
		into.Set(reflect.MakeSlice(into.Type(), len(tables), len(tables)))
		d.inList = true
		for i, keys := range tables {
			d.table(fmt.Sprintf("%s[%d]", path, i), into.Index(i), keys)
		}
		return true
	}
	elements, ok := value.([]any)
	if !ok {
		d.wrong(at, "must be a list in brackets, it is "+describe(value))
		return false
	}
	into.Set(reflect.MakeSlice(into.Type(), len(elements), len(elements)))
	for i, element := range elements {
		d.scalar(fmt.Sprintf("%s[%d]", path, i), fmt.Sprintf("%s[%d]", at, i), into.Index(i), element)
	}
	return true
}

// remember notes where a key stands. The elements of a list are not noted: it is replaced as a whole, so they stand where
// it stands.
func (d decoder) remember(path string) {
	if !d.inList {
		d.entry.sources[path] = d.source
	}
}

func (d decoder) wrong(at, message string) {
	d.entry.badValues = append(d.entry.badValues, Problem{File: d.source.file, Path: join(d.source.root, at), Message: message})
}

// fieldOf finds the field of a key. GitLab's keys match in any case, as they do in GitLab Runner; ours only as written,
// since a second spelling in one of two merged files would be a trap.
func fieldOf(into reflect.Value, key string) (field reflect.Value, tag string, ok bool) {
	folded := -1
	for i := range into.NumField() {
		tag, _ := into.Type().Field(i).Tag.Lookup("toml")
		switch {
		case tag == "" || tag == "-":
		case tag == key:
			return into.Field(i), tag, true
		case strings.EqualFold(tag, key) && !isOwn(into.Type(), tag):
			folded = i
		}
	}
	if folded < 0 {
		return reflect.Value{}, "", false
	}
	return into.Field(folded), into.Type().Field(folded).Tag.Get("toml"), true
}

func unmarshaler() reflect.Type { return reflect.TypeFor[toml.Unmarshaler]() }

// header is how a table at path is written in brackets: below [[runners]], and without indexes.
func header(path string) string {
	var b strings.Builder
	b.WriteString("runners.")
	for len(path) > 0 {
		before, rest, _ := strings.Cut(path, "[")
		b.WriteString(before)
		_, path, _ = strings.Cut(rest, "]")
	}
	return b.String()
}

// quoteKey writes a key as TOML would: in quotes unless it is bare.
func quoteKey(key string) string {
	bare := key != "" && !strings.ContainsFunc(key, func(r rune) bool {
		return r != '_' && r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
	if bare {
		return key
	}
	return strconv.Quote(key)
}
