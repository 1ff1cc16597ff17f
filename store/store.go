package store

import (
	"log/slog"
	"time"
)

// Config says where the database is.
type Config struct {
	URL              string        // a connection string as libpq takes it; several hosts may be named, the one that takes writes is used
	Schema           string        // "": public
	MaxConns         int32         // 0: 8
	Pooler           string        // "auto" (or ""), "none", "transaction"
	ApplicationName  string        // "": outlane
	StatementTimeout time.Duration // 0: 30 s
	Logger           *slog.Logger  // nil: slog.Default
}

// Store is a pool of connections to one database.
type Store struct{ cfg Config }

// Open checks cfg. It does not connect.
func Open(cfg Config) (*Store, error) { return &Store{cfg: cfg}, nil }

// Close ends all connections. Calls under way are waited for.
func (s *Store) Close() {}

// Reset drops all connections: idle ones now, those in use after their call. The next call connects anew, and looks the address up again.
func (s *Store) Reset() {}
