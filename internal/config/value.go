package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// set gives v, a value of f's kind, what text says. Its error goes on after the field's name and place: "is 0; …". It has no secret.
func (f Field) set(v reflect.Value, text string) error {
	parsed, err := f.parse(text)
	if err != nil {
		return fmt.Errorf("is %s; %w", f.quote(text), err)
	}
	if v.Kind() == reflect.Bool {
		parsed = *parsed.(*bool)
	}
	v.Set(reflect.ValueOf(parsed))
	return nil
}

// parse reads text and checks its range. Its error says what is wanted.
func (f Field) parse(text string) (any, error) {
	switch f.Kind {
	case KindNumber:
		n, err := strconv.Atoi(text)
		if err != nil {
			return nil, errors.New("want a whole number")
		}
		return n, inRange(f, n, strconv.Atoi)
	case KindDuration:
		d, err := time.ParseDuration(text)
		if err != nil {
			return nil, errors.New("want a duration with a unit, such as 250ms, 10s or 2m")
		}
		return d, inRange(f, d, time.ParseDuration)
	case KindBytes:
		n, err := ParseByteSize(text)
		if err != nil {
			return nil, err
		}
		return n, inRange(f, n, ParseByteSize)
	case KindBool:
		switch text {
		case "true", "false":
			b := text == "true"
			return &b, nil
		}
		return nil, errors.New("want true or false")
	case KindText:
		if f.OneOf != nil && (text != "" || f.Default != "") && !slices.Contains(f.OneOf, text) {
			want := "want " + alternatives(f.OneOf)
			if near := Nearest(text, f.OneOf); near != "" && len(f.OneOf) > 3 {
				want += "; did you mean " + near + "?"
			}
			return nil, errors.New(want)
		}
		if strings.ContainsRune(text, 0) {
			return nil, errors.New("want a text without NUL")
		}
		return text, nil
	case KindTexts:
	}
	return nil, fmt.Errorf("want a %s", f.Kind)
}

func inRange[T int | time.Duration | ByteSize](f Field, v T, parse func(string) (T, error)) error {
	bound := func(text string) (T, bool) {
		b, err := parse(text)
		return b, err == nil
	}
	low, hasLow := bound(f.Min)
	high, hasHigh := bound(f.Max)
	switch {
	case (!hasLow || v >= low) && (!hasHigh || v <= high):
		return nil
	case hasLow && hasHigh:
		return fmt.Errorf("want %s to %s", f.Min, f.Max)
	case hasLow:
		return fmt.Errorf("want at least %s", f.Min)
	}
	return fmt.Errorf("want at most %s", f.Max)
}

// quote shows a value in an error: shortened, and hidden if it is a secret.
func (f Field) quote(text string) string {
	const most = 60
	switch {
	case f.Secret:
		return "not valid"
	case text == "":
		return "empty"
	case len(text) > most:
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	if f.Kind == KindText || f.Kind == KindTexts || strings.ContainsAny(text, " \t\r\n\"") {
		return strconv.Quote(text)
	}
	return text
}

// format writes a value as the file would have it; "" for a bool that says nothing.
func format(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case time.Duration:
		return formatDuration(x)
	case *bool:
		if x == nil {
			return ""
		}
		return strconv.FormatBool(*x)
	case []string:
		return strings.Join(x, ", ")
	default:
		return fmt.Sprint(x)
	}
}

// formatDuration is as Duration.String without the zero parts at its end: 2m, not 2m0s.
func formatDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

func alternatives(texts []string) string {
	if len(texts) == 1 {
		return texts[0]
	}
	return strings.Join(texts[:len(texts)-1], ", ") + " or " + texts[len(texts)-1]
}

// summary is the help's first sentence, as the help of a flag has it.
func (f Field) summary() string {
	first, _, _ := strings.Cut(f.Help, ". ")
	return strings.TrimSuffix(first, ".")
}
