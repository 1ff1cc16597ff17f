package config

import (
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing wrong with a configuration.
type Problem struct {
	Field string // the field's path, such as worker.batchEvents or routes[0].stream; empty if it is about a whole source
	Text  string // one line: what is wrong, where, and its mend
}

// Error is everything that is wrong with a configuration.
type Error struct{ Problems []Problem }

// Error has one line for each problem.
func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.Text
	}
	return strings.Join(lines, "\n")
}

// OriginKind says what kind of place a value came from.
type OriginKind string

// Kinds of origins, weakest first. FromSecretFile is as strong as the field that named the file.
const (
	FromDefault    OriginKind = "default"
	FromFile       OriginKind = "file"
	FromEnv        OriginKind = "env"
	FromFlag       OriginKind = "flag"
	FromSecretFile OriginKind = "secret file"
)

// Origin is where a value came from.
type Origin struct {
	Kind OriginKind
	Name string // the file's path, the variable, or the flag with its dashes; empty for a default
	Line int    // in the file, from 1
}

// String is as config print shows it: "default", "outlane.yaml:3", "env OUTLANE_NATS_URL", "flag --nats-url", "file /run/secrets/url".
func (o Origin) String() string {
	switch o.Kind {
	case FromFile:
		return fmt.Sprintf("%s:%d", o.Name, o.Line)
	case FromEnv:
		return "env " + o.Name
	case FromFlag:
		return "flag " + o.Name
	case FromSecretFile:
		return "file " + o.Name
	case FromDefault:
	}
	return string(FromDefault)
}

// phrase is the origin inside a sentence about a field, with a space before it.
func (o Origin) phrase() string {
	switch o.Kind {
	case FromFile:
		return " at " + o.String()
	case FromEnv, FromFlag, FromSecretFile:
		return " from " + o.Name
	case FromDefault:
	}
	return ""
}

// problems collects what is wrong. Only the first problem of a field counts: the others mostly follow from it.
type problems struct{ list []Problem }

func (p *problems) add(field, format string, args ...any) {
	if field != "" && p.has(field) {
		return
	}
	p.list = append(p.list, Problem{Field: field, Text: oneLine(fmt.Sprintf(format, args...))})
}

func (p *problems) has(field string) bool {
	return slices.ContainsFunc(p.list, func(known Problem) bool { return known.Field == field })
}

func (p *problems) err() error {
	if len(p.list) == 0 {
		return nil
	}
	return &Error{Problems: p.list}
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
