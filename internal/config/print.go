package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"text/tabwriter"

	"go.yaml.in/yaml/v3"

	"github.com/outlane/outlane/internal/redact"
)

// Setting is one effective value as a person may see it.
type Setting struct {
	Path   string // "worker.batchEvents", "routes[0].stream"
	Value  string // in the form the file has; a secret is masked
	Origin Origin
}

// Settings are all effective values, in the order of the file.
func (c *Config) Settings() []Setting {
	var all []Setting
	for _, f := range fieldTable {
		all = append(all, Setting{f.Path, f.display(format(c.value(f))), c.Origin(f.Path)})
	}
	for _, list := range listNames {
		items := c.list(list)
		for i := range items.Len() {
			for _, f := range itemTables[list] {
				path := fmt.Sprintf("%s[%d].%s", list, i, f.Name)
				all = append(all, Setting{path, format(items.Index(i).FieldByIndex(f.index)), c.Origin(path)})
			}
		}
	}
	return all
}

// Secrets are the values to keep out of logs and errors, for redact.New. One that is to be read elsewhere in the configuration as well, as
// when the password is the user's name, is left out: hiding it everywhere would hide no secret.
func (c *Config) Secrets() []string {
	var secrets []string
	for _, f := range fieldTable {
		text := c.text(f)
		switch {
		case f.isURL:
			secrets = append(secrets, redact.Secrets(text)...)
		case f.Secret:
			secrets = append(secrets, text)
		}
	}
	visible := c.Settings()
	return slices.DeleteFunc(secrets, func(secret string) bool {
		return slices.ContainsFunc(visible, func(s Setting) bool { return strings.Contains(s.Value, secret) })
	})
}

// listNames are the lists of the configuration, in the order of the file.
var listNames = []string{"routes", "streams"}

func (c *Config) list(name string) reflect.Value {
	return reflect.ValueOf(c).Elem().Field(childrenOf(reflect.ValueOf(c).Elem())[name])
}

func (f Field) display(text string) string {
	switch {
	case f.isURL:
		return redact.URL(text)
	case f.Secret && text != "":
		return redact.Mask
	}
	return text
}

// WriteText writes a table of fields, values and origins.
func (c *Config) WriteText(w io.Writer) error {
	rows := "FIELD\tVALUE\tORIGIN\n"
	for _, s := range c.Settings() {
		value := s.Value
		if value == "" {
			value = "-"
		}
		rows += s.Path + "\t" + value + "\t" + s.Origin.String() + "\n"
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if _, err := io.WriteString(table, rows); err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	return table.Flush()
}

// WriteYAML writes a configuration file that has the effective values, each with its origin behind it.
func (c *Config) WriteYAML(w io.Writer) error {
	var buf bytes.Buffer
	encoder := yaml.NewEncoder(&buf)
	encoder.SetIndent(2)
	if err := encoder.Encode(c.node(reflect.ValueOf(c).Elem(), "")); err != nil {
		return fmt.Errorf("encode the configuration: %w", err)
	}
	_, err := buf.WriteTo(w)
	return err
}

// WriteJSON writes one object: values, shaped as the file, and origins by path.
func (c *Config) WriteJSON(w io.Writer) error {
	var values map[string]any
	if err := c.node(reflect.ValueOf(c).Elem(), "").Decode(&values); err != nil {
		return fmt.Errorf("shape the configuration: %w", err)
	}
	origins := map[string]string{}
	for _, s := range c.Settings() {
		origins[s.Path] = s.Origin.String()
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(map[string]any{"values": values, "origins": origins})
}

// node is v as YAML. Values that say nothing are left out of items of lists.
func (c *Config) node(v reflect.Value, prefix string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for i := range v.NumField() {
		name := v.Type().Field(i).Tag.Get("name")
		if name == "" {
			continue
		}
		child, path := v.Field(i), prefix+name
		key := &yaml.Node{Kind: yaml.ScalarNode, Value: name}
		_, isValue := kindOf(child.Type())
		switch {
		case isValue:
			f := fieldOf(path)
			if f.Env == "" && child.IsZero() {
				continue
			}
			value := valueNode(f, child)
			// A comment behind a list's brackets would be lost at its end, so it goes behind the key there.
			if f.Kind == KindTexts {
				key.LineComment = c.Origin(path).String()
			} else {
				value.LineComment = c.Origin(path).String()
			}
			n.Content = append(n.Content, key, value)
		case child.Kind() == reflect.Struct:
			n.Content = append(n.Content, key, c.node(child, path+"."))
		default:
			list := &yaml.Node{Kind: yaml.SequenceNode}
			if child.Len() == 0 {
				list.Style = yaml.FlowStyle
			}
			for j := range child.Len() {
				list.Content = append(list.Content, c.node(child.Index(j), fmt.Sprintf("%s[%d].", path, j)))
			}
			n.Content = append(n.Content, key, list)
		}
	}
	return n
}

func valueNode(f Field, v reflect.Value) *yaml.Node {
	if f.Kind == KindTexts {
		list := &yaml.Node{Kind: yaml.SequenceNode}
		for i := range v.Len() {
			list.Content = append(list.Content, textNode(v.Index(i).String()))
		}
		return list
	}
	text := f.display(format(v))
	switch f.Kind {
	case KindNumber:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: text}
	case KindBool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: text}
	case KindText, KindDuration, KindBytes, KindTexts:
	}
	return textNode(text)
}

func textNode(text string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(text)
	return n
}
