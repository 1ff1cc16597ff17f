package config

import (
	"fmt"
	"reflect"
	"strings"
	"time"
	"unicode"
)

// Kind is the type of a field's value.
type Kind string

// Kinds of values, by the word that documentation and errors use.
const (
	KindText     Kind = "text"
	KindNumber   Kind = "whole number"
	KindBool     Kind = "true or false"
	KindDuration Kind = "duration"
	KindBytes    Kind = "size"
	KindTexts    Kind = "list of texts"
)

// Field is a row of the table of everything that can be set.
type Field struct {
	Path     string // "worker.batchEvents"; a field of a list's items has [] in it: "routes[].topics"
	Name     string // last part of Path
	Kind     Kind
	Default  string   // in the form the file has
	Min, Max string   // of numbers, durations and sizes; empty: no bound
	OneOf    []string // the allowed texts, if not all
	Required bool     // of an item of a list
	Secret   bool
	Help     string
	Env      string // empty for fields of items
	Flag     string // without dashes; empty for fields of items
	Short    string // a second, shorter flag, if there is one
	Common   bool   // its flag is shown in every command's help

	isURL bool  // a secret that is part of a URL
	file  bool  // a secret that may come from the file named by Path+"File"
	index []int // of the value in Config, or in the item
}

const envPrefix = "OUTLANE_"

// fieldTable has the scalars in the order of Config; itemTables the fields of each list's items.
var (
	fieldTable = tableOf(reflect.TypeFor[Config](), "", nil)
	itemTables = map[string][]Field{
		"routes":  tableOf(reflect.TypeFor[Route](), "routes[].", nil),
		"streams": tableOf(reflect.TypeFor[Stream](), "streams[].", nil),
	}
	fieldByPath = byPath(fieldTable)
)

// Fields is the table of the values that file, environment and flags can set, in the order of the file.
func Fields() []Field { return append([]Field(nil), fieldTable...) }

func tableOf(t reflect.Type, prefix string, index []int) []Field {
	var table []Field
	for i := range t.NumField() {
		sf := t.Field(i)
		name := sf.Tag.Get("name")
		if name == "" {
			continue
		}
		at := append(append([]int(nil), index...), i)
		kind, ok := kindOf(sf.Type)
		if !ok {
			if sf.Type.Kind() == reflect.Struct {
				table = append(table, tableOf(sf.Type, prefix+name+".", at)...)
			}
			continue
		}
		f := Field{
			Path: prefix + name, Name: name, Kind: kind, index: at,
			Default: sf.Tag.Get("default"), Min: sf.Tag.Get("min"), Max: sf.Tag.Get("max"), Help: sf.Tag.Get("help"),
			Required: sf.Tag.Get("required") != "", Secret: sf.Tag.Get("secret") != "", isURL: sf.Tag.Get("secret") == "url",
		}
		if oneof := sf.Tag.Get("oneof"); oneof != "" {
			f.OneOf = strings.Split(oneof, "|")
		}
		if f.Secret {
			_, f.file = t.FieldByName(sf.Name + "File")
		}
		if !strings.Contains(prefix, "[]") {
			f.Env = envPrefix + words(f.Path, '_', unicode.ToUpper)
			f.Flag = words(f.Path, '-', unicode.ToLower)
			switch short := sf.Tag.Get("flag"); short {
			case "":
			case "common":
				f.Common = true
			default:
				f.Common, f.Short = true, short
			}
		}
		table = append(table, f)
	}
	return table
}

func kindOf(t reflect.Type) (Kind, bool) {
	switch t {
	case reflect.TypeFor[string]():
		return KindText, true
	case reflect.TypeFor[int]():
		return KindNumber, true
	case reflect.TypeFor[bool](), reflect.TypeFor[*bool]():
		return KindBool, true
	case reflect.TypeFor[time.Duration]():
		return KindDuration, true
	case reflect.TypeFor[ByteSize]():
		return KindBytes, true
	case reflect.TypeFor[[]string]():
		return KindTexts, true
	}
	return "", false
}

// words turns "worker.batchEvents" into "WORKER_BATCH_EVENTS" or "worker-batch-events".
func words(path string, sep rune, change func(rune) rune) string {
	var b strings.Builder
	for i, r := range path {
		switch {
		case r == '.':
			b.WriteRune(sep)
			continue
		case unicode.IsUpper(r) && i > 0:
			b.WriteRune(sep)
		}
		b.WriteRune(change(r))
	}
	return b.String()
}

func byPath(table []Field) map[string]Field {
	m := make(map[string]Field, len(table))
	for _, f := range table {
		if _, twice := m[f.Path]; twice {
			panic(fmt.Sprintf("field %s is in the table twice", f.Path))
		}
		m[f.Path] = f
	}
	return m
}

// configTag is a tag of the field of Config that has this name.
func configTag(name, tag string) string {
	t := reflect.TypeFor[Config]()
	for i := range t.NumField() {
		if t.Field(i).Tag.Get("name") == name {
			return t.Field(i).Tag.Get(tag)
		}
	}
	return ""
}
