package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

var (
	// ErrFenced says that the partition's epoch is not the caller's any more: somebody else has claimed it, or a person has decided something
	// about one of its events. Nothing was changed.
	ErrFenced = errors.New("partition has another epoch")

	// ErrReadOnly says that the server refuses writes: a standby, or the rest of a failover.
	ErrReadOnly = errors.New("database is read-only")

	// ErrNoSession says that the connection leads through a pooler that lends sessions for one transaction only, where LISTEN cannot work.
	ErrNoSession = errors.New("no session of its own behind a transaction pooler")

	// ErrNoDeadLetter says that there is no dead letter with that id.
	ErrNoDeadLetter = errors.New("no such dead letter")

	// ErrResolved says that the dead letter was retried or skipped before.
	ErrResolved = errors.New("dead letter is resolved already")
)

// SchemaError says that the database's schema is missing, older or newer than what this program was built for.
type SchemaError struct {
	Schema string
	Have   int64 // 0: none is installed
	Want   int64
}

func (e *SchemaError) Error() string {
	switch {
	case e.Have == 0:
		return fmt.Sprintf("schema %q has no outbox: run outlane migrate up", e.Schema)
	case e.Have < e.Want:
		return fmt.Sprintf("schema %q is at version %d, this program needs %d: run outlane migrate up", e.Schema, e.Have, e.Want)
	}
	return fmt.Sprintf("schema %q is at version %d, this program knows only %d: run a newer outlane, or outlane migrate down with that newer one",
		e.Schema, e.Have, e.Want)
}

// IsUnavailable says whether err is about the server or the way to it and not about the statement, so that waiting and trying again helps:
// no connection, a deadline of the call, a server that starts, stops, recovers, stands by or has run out of something.
func IsUnavailable(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) {
		return false
	}
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return unavailableCode(e.Code) || isConnectError(err)
	}
	var schema *SchemaError
	switch {
	case errors.Is(err, ErrFenced), errors.Is(err, ErrNoSession), errors.Is(err, ErrNoDeadLetter), errors.Is(err, ErrResolved),
		errors.As(err, &schema):
		return false
	case errors.Is(err, ErrReadOnly), errors.Is(err, context.DeadlineExceeded), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, net.ErrClosed), isConnectError(err):
		return true
	}
	var n net.Error
	return errors.As(err, &n) || pgconn.SafeToRetry(err) || strings.Contains(err.Error(), "conn closed")
}

func isConnectError(err error) bool {
	var e *pgconn.ConnectError
	return errors.As(err, &e)
}

// unavailableCode knows the SQLSTATEs that say so.
func unavailableCode(code string) bool {
	switch code {
	case "25006", // read_only_sql_transaction
		"40001", // serialization_failure
		"40P01", // deadlock_detected
		"55P03", // lock_not_available
		"57014", // query_canceled: the statement timeout
		"57P01", // admin_shutdown
		"57P02", // crash_shutdown
		"57P03", // cannot_connect_now
		"57P04", // database_dropped
		"57P05", // idle_session_timeout
		"25P03": // idle_in_transaction_session_timeout
		return true
	}
	switch code[:min(2, len(code))] {
	case "08", // connection_exception
		"53", // insufficient_resources
		"58": // system_error
		return true
	}
	return false
}

// failed completes an error with what was being done. After the server has refused to write, the connections are dropped: the next ones go
// where writes are taken.
func (s *Store) failed(what string, err error) error {
	var e *pgconn.PgError
	switch {
	case errors.As(err, &e) && e.Code == "25006":
		s.pool.Reset()
		return fmt.Errorf("%s: %w: %w", what, ErrReadOnly, err)
	case e != nil && e.Code == "42501": // insufficient_privilege
		return fmt.Errorf("%s: %w; outlane migrate grants --worker gives a role the rights", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}
