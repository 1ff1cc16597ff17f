package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// fileReader puts what a YAML file says into a Config.
type fileReader struct {
	name string
	cfg  *Config
	bad  *problems
}

var yamlLine = regexp.MustCompile(`^(?:yaml: )?(?:line (\d+): )?(.*)`)

func (r *fileReader) read(text []byte) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var doc, second yaml.Node
	if err := decoder.Decode(&doc); err != nil {
		if !errors.Is(err, io.EOF) {
			r.syntax(err)
		}
		return
	}
	switch err := decoder.Decode(&second); {
	case err == nil:
		r.bad.add("", "a second document begins at %s:%d; keep one", r.name, second.Line)
	case !errors.Is(err, io.EOF):
		r.syntax(err)
	}
	r.mapping(doc.Content[0], reflect.ValueOf(r.cfg).Elem(), "")
}

func (r *fileReader) syntax(err error) {
	m := yamlLine.FindStringSubmatch(oneLine(err.Error()))
	where := r.name
	if m[1] != "" {
		where += ":" + m[1]
	}
	r.bad.add("", "no valid YAML at %s: %s", where, m[2])
}

func (r *fileReader) at(n *yaml.Node) Origin {
	return Origin{Kind: FromFile, Name: r.name, Line: n.Line}
}

func resolve(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// mapping fills the struct v, whose fields have paths that begin with prefix.
func (r *fileReader) mapping(n *yaml.Node, v reflect.Value, prefix string) {
	origin := r.at(n)
	n = resolve(n)
	if isNull(n) {
		return
	}
	if n.Kind != yaml.MappingNode {
		what := strings.TrimSuffix(prefix, ".")
		if what == "" {
			what = "the configuration"
		}
		r.bad.add(what, "%s%s is %s; want fields, as in name: value", what, origin.phrase(), kindOfNode(n))
		return
	}
	children := childrenOf(v)
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		name := key.Value
		index, known := children[name]
		switch first, twice := seen[name]; {
		case key.Kind != yaml.ScalarNode:
			r.bad.add("", "a field at %s:%d has no plain name; want name: value", r.name, key.Line)
			continue
		case twice:
			r.bad.add("", "field %q at %s:%d is given twice, first on line %d; keep one", prefix+name, r.name, key.Line, first)
			continue
		case !known:
			r.bad.add("", "unknown field %q at %s:%d%s", name, r.name, key.Line, r.suggest(name, prefix, children))
		}
		seen[name] = key.Line
		if known {
			r.value(value, v.Field(index), prefix+name)
		}
	}
}

// value fills v, which is a section, a list of sections, or a value.
func (r *fileReader) value(n *yaml.Node, v reflect.Value, path string) {
	if _, isValue := kindOf(v.Type()); isValue {
		r.scalar(n, v, path)
		return
	}
	if v.Kind() == reflect.Struct {
		r.mapping(n, v, path+".")
		return
	}
	origin := r.at(n)
	if n = resolve(n); isNull(n) {
		return
	}
	if n.Kind != yaml.SequenceNode {
		r.bad.add(path, "%s%s is %s; want a list, one item a line after a dash", path, origin.phrase(), kindOfNode(n))
		return
	}
	r.cfg.origins[path] = origin
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, item := range n.Content {
		at := fmt.Sprintf("%s[%d]", path, i)
		r.cfg.origins[at] = r.at(item)
		for _, f := range itemTables[path] {
			r.cfg.fill(f, v.Index(i).FieldByIndex(f.index), at+"."+f.Name)
		}
		r.mapping(item, v.Index(i), at+".")
	}
}

func (r *fileReader) scalar(n *yaml.Node, v reflect.Value, path string) {
	f := fieldOf(path)
	origin := r.at(n)
	n = resolve(n)
	if isNull(n) {
		return
	}
	if f.Kind == KindTexts {
		r.texts(n, v, path, origin)
		return
	}
	if want := wantOf(f, n); want != "" {
		r.bad.add(path, "%s%s is %s; %s", path, origin.phrase(), kindOfNode(n), want)
		return
	}
	if err := f.set(v, n.Value); err != nil {
		r.bad.add(path, "%s%s %v", path, origin.phrase(), err)
		return
	}
	r.cfg.origins[path] = origin
}

func (r *fileReader) texts(n *yaml.Node, v reflect.Value, path string, origin Origin) {
	if n.Kind != yaml.SequenceNode {
		r.bad.add(path, "%s%s is %s; want a list, such as [payout.>]", path, origin.phrase(), kindOfNode(n))
		return
	}
	r.cfg.origins[path] = origin
	list := make([]string, 0, len(n.Content))
	for i, item := range n.Content {
		at := r.at(item)
		if item = resolve(item); item.Kind != yaml.ScalarNode || item.Tag != "!!str" {
			r.bad.add(path, "%s[%d]%s is %s; want a text, in quotes if it looks like something else", path, i, at.phrase(), kindOfNode(item))
			continue
		}
		list = append(list, item.Value)
	}
	v.Set(reflect.ValueOf(list))
}

// wantOf says what f would have instead of a node of another type; "" if the type is right.
func wantOf(f Field, n *yaml.Node) string {
	if n.Kind != yaml.ScalarNode {
		return "want a " + string(f.Kind)
	}
	switch {
	case f.Kind == KindText && n.Tag != "!!str":
		return "want a text; write it in quotes"
	case f.Kind == KindNumber && n.Tag != "!!int" && n.Tag != "!!float":
		return "want a whole number, without quotes"
	case f.Kind == KindBool && n.Tag != "!!bool":
		return "want true or false, without quotes"
	case f.Kind == KindDuration && n.Tag != "!!str" && n.Value != "0":
		return "want a duration with a unit, such as 250ms, 10s or 2m"
	case f.Kind == KindBytes && n.Tag != "!!str" && n.Tag != "!!int":
		return "want a size such as 4MiB, 500kB or 1048576"
	}
	return ""
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// kindOfNode names a node's type, never its value: it may be a secret.
func kindOfNode(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a section with fields"
	case yaml.SequenceNode:
		return "a list"
	case yaml.ScalarNode, yaml.DocumentNode, yaml.AliasNode:
	}
	switch n.Tag {
	case "!!int", "!!float":
		return "a number"
	case "!!bool":
		return "true or false"
	case "!!null":
		return "empty"
	case "!!timestamp":
		return "a date"
	}
	return "a text"
}

// childrenOf maps the names of v's fields to their places.
func childrenOf(v reflect.Value) map[string]int {
	children := map[string]int{}
	for i := range v.NumField() {
		if name := v.Type().Field(i).Tag.Get("name"); name != "" {
			children[name] = i
		}
	}
	return children
}

// suggest says what an unknown field may have meant: one beside it, or one of the same name elsewhere.
func (r *fileReader) suggest(name, prefix string, children map[string]int) string {
	if name == "<<" {
		return "; merge keys are not supported, write the fields out"
	}
	siblings := slices.Sorted(maps.Keys(children))
	if near := Nearest(name, siblings); near != "" {
		return "; did you mean " + near + "?"
	}
	for _, f := range fieldTable {
		if strings.EqualFold(f.Name, name) || strings.EqualFold(f.Path, name) {
			return "; did you mean " + f.Path + "?"
		}
	}
	where := "at the top"
	if prefix != "" {
		where = "in " + strings.TrimSuffix(prefix, ".")
	}
	return fmt.Sprintf("; known %s: %s", where, strings.Join(siblings, ", "))
}

var listIndex = regexp.MustCompile(`\[\d+\]`)

// fieldOf is the row of the table for a path, which may go through a list's item.
func fieldOf(path string) Field {
	if f, ok := fieldByPath[path]; ok {
		return f
	}
	general := listIndex.ReplaceAllString(path, "[]")
	list, _, _ := strings.Cut(general, "[")
	for _, f := range itemTables[list] {
		if f.Path == general {
			return f
		}
	}
	panic("no field " + path)
}
