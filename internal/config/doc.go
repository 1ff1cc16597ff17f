// Package config is Outlane's configuration: one strict YAML file, environment variables and flags.
//
// # What it promises
//
//   - A value comes from the strongest place that names it: a flag, then the environment, then the file, then the default. Each value knows
//     where it came from (Origin).
//   - Nothing is ignored: an unknown field or OUTLANE_ variable, a wrong type, a value out of range and a field given twice are errors. Load
//     collects all of them into one *Error, each with its place and its mend.
//   - One table, Fields, made from the struct tags of Config, drives the file, the variables, the flags, the documentation and the printout.
//   - A secret is in no error and in no printout, also when it is part of a URL.
//
// # What it does not promise
//
// That a server answers, or that what is said about it is true: nothing here opens a connection. Secrets' files are read once, by Load.
//
// # Who may call what
//
// AddFlags once for a flag set, before it is parsed; Load after that. A Config is not changed after Load and may be read by any goroutine.
//
//go:generate go test -run TestDocumentationIsUpToDate -update
package config
