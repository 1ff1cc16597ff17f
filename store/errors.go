package store

import (
	"errors"
	"fmt"
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
