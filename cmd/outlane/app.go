package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outlane/outlane/internal/config"
	"github.com/outlane/outlane/internal/redact"
	"github.com/outlane/outlane/publish"
	"github.com/outlane/outlane/store"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// app is one run of the program.
type app struct {
	environ []string
	out     io.Writer
	err     io.Writer

	cfg    *config.Config
	redact *redact.Redactor
}

// errFaults ends a command that did its work, reported on it, and found something wrong. Nothing more is printed.
var errFaults = errors.New("faults were found")

// usageError is a mistake on the command line or in the configuration.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// report prints err, one line for each thing that is wrong, and gives the exit code.
func (a *app) report(err error) int {
	if err == nil {
		return exitOK
	}
	if errors.Is(err, errFaults) {
		return exitFailed
	}
	if a.redact == nil {
		a.redact = redact.New()
	}
	var wrong *config.Error
	lines := []string{strings.Join(strings.Fields(err.Error()), " ")}
	if errors.As(err, &wrong) {
		lines = lines[:0]
		for _, p := range wrong.Problems {
			lines = append(lines, p.Text)
		}
	}
	for _, line := range lines {
		_, _ = fmt.Fprintf(a.err, "outlane: %s\n", a.redact.Text(line)) // there is no other place to complain at
	}
	var usage usageError
	if wrong != nil || errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailed
}

// load reads the configuration. Each command that uses it names the values it cannot do without.
func (a *app) load(cmd *cobra.Command, needs ...string) (*config.Config, error) {
	cfg, err := config.Load(a.environ, cmd.Flags())
	if cfg != nil {
		a.redact = redact.New(cfg.Secrets()...)
	}
	if err != nil {
		return nil, err
	}
	if err := cfg.Need(needs...); err != nil {
		return nil, err
	}
	a.cfg = cfg
	return cfg, nil
}

// logger is for commands that run on: it follows the configuration and hides secrets.
func (a *app) logger() *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(a.cfg.Log.Level)); err != nil {
		level = slog.LevelInfo
	}
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: a.redact.Attr}
	if a.cfg.Log.Format == "text" {
		return slog.New(slog.NewTextHandler(a.err, options))
	}
	return slog.New(slog.NewJSONHandler(a.err, options))
}

// openStore prepares the database of the configuration, for at most so many connections, without connecting to it.
func (a *app) openStore(logger *slog.Logger, name string, connections int, change ...func(*store.Config)) (*store.Store, error) {
	d := a.cfg.Database
	c := store.Config{
		URL: d.URL, Schema: d.Schema, MaxConns: int32(connections), Pooler: d.Pooler, ApplicationName: name,
		StatementTimeout: d.StatementTimeout, Logger: logger,
	}
	for _, f := range change {
		f(&c)
	}
	s, err := store.Open(c)
	if err != nil {
		return nil, usageError{fmt.Errorf("database.url: %w", err)}
	}
	return s, nil
}

// connect prepares the connection to NATS, without waiting for it. onState may be nil.
func (a *app) connect(logger *slog.Logger, name string, onState func(connected bool, reason string)) (*publish.Broker, error) {
	n := a.cfg.NATS
	c := publish.Config{MinDuplicateWindow: a.cfg.ResendWithin(),
		URL: n.URL, Name: name, Username: n.User, Password: n.Password, Token: n.Token,
		CredsFile: n.CredsFile, NKeyFile: n.NKeyFile, TLSCAFile: n.TLS.CA, TLSCertFile: n.TLS.Cert, TLSKeyFile: n.TLS.Key,
		InboxPrefix: n.InboxPrefix, AckTimeout: n.AckTimeout, Logger: logger, OnState: onState,
	}
	// The broker reads files anew at each connection, so that rotated secrets are picked up.
	if n.PasswordFile != "" {
		c.Password, c.PasswordFile = "", n.PasswordFile
	}
	if n.TokenFile != "" {
		c.Token, c.TokenFile = "", n.TokenFile
	}
	b, err := publish.Connect(c)
	if err != nil {
		return nil, usageError{fmt.Errorf("nats: %w", err)}
	}
	return b, nil
}

// withStore runs an operator's command on the database.
func (a *app) withStore(cmd *cobra.Command, do func(context.Context, *store.Store) error) error {
	if _, err := a.load(cmd, "database.url"); err != nil {
		return err
	}
	s, err := a.openStore(slog.New(slog.DiscardHandler), "outlane "+cmd.Name(), a.cfg.Database.MaxConnections)
	if err != nil {
		return err
	}
	defer s.Close()
	return do(cmd.Context(), s)
}
