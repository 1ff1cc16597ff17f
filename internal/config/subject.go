package config

import (
	"errors"
	"fmt"
	"strings"
)

// checkPattern says what is wrong with a subject pattern, if anything.
func checkPattern(pattern string) error {
	tokens := strings.Split(pattern, ".")
	for i, token := range tokens {
		switch {
		case pattern == "":
			return errors.New("is empty; want a pattern such as payout.>")
		case token == "":
			return errors.New("has an empty part between dots; remove it")
		case strings.ContainsAny(token, " \t\r\n\x00"):
			return errors.New("has a space; remove it")
		case token == ">" && i < len(tokens)-1:
			return errors.New("has > before its end; it can only be the last part")
		case len(token) > 1 && strings.ContainsAny(token, "*>"):
			return fmt.Errorf("has a wildcard inside %q; * and > stand for whole parts between dots", token)
		}
	}
	return nil
}

// covers says whether every subject of inner is one of outer.
func covers(outer, inner string) bool {
	o, i := strings.Split(outer, "."), strings.Split(inner, ".")
	for k, token := range o {
		switch {
		case k >= len(i):
			return false
		case token == ">":
			return true
		case i[k] == ">", token != "*" && token != i[k]:
			return false
		}
	}
	return len(o) == len(i)
}

// overlaps says whether some subject is one of both.
func overlaps(a, b string) bool {
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	for k := range min(len(x), len(y)) {
		switch {
		case x[k] == ">" || y[k] == ">":
			return true
		case x[k] != "*" && y[k] != "*" && x[k] != y[k]:
			return false
		}
	}
	return len(x) == len(y)
}
