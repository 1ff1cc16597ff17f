package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Config says where the database is.
type Config struct {
	URL              string        // a connection string as libpq takes it; of several hosts, the first that takes writes is used
	Schema           string        // "": public
	MaxConns         int32         // 0: 8
	Pooler           string        // one of PoolerAuto (or ""), PoolerNone, PoolerTransaction
	ApplicationName  string        // "": outlane
	StatementTimeout time.Duration // 0: 30 s
	Logger           *slog.Logger  // nil: slog.Default()

	// LargestBody is the most bytes of payload that anybody takes now. What is certainly larger is not read, so that a row that can be sent
	// nowhere needs no memory. nil: everything is read.
	LargestBody func() int64
}

// Values of Config.Pooler.
const (
	PoolerAuto        = "auto"        // direct, unless the way to the database turns out to be a pooler
	PoolerNone        = "none"        // direct; a pooler in between is an error
	PoolerTransaction = "transaction" // through a pooler that lends sessions for one transaction
)

const (
	defaultMaxConns         = 8
	defaultStatementTimeout = 30 * time.Second
	pollTimeout             = 5 * time.Second

	// decideTimeout bounds a person's decision: it may release a million parked events.
	decideTimeout = 5 * time.Minute
)

// Store is a pool of connections to one database.
type Store struct {
	pool    *pgxpool.Pool
	log     *slog.Logger
	timeout time.Duration
	name    string // the schema's
	schema  string // the same, quoted
	texts   sync.Map
	auto    bool
	pooled  atomic.Bool
	seen    seen
	largest func() int64
}

// Open checks cfg. It does not connect.
func Open(cfg Config) (*Store, error) {
	s := &Store{log: cfg.Logger, timeout: cfg.StatementTimeout, name: cfg.Schema, largest: cfg.LargestBody}
	if s.largest == nil {
		s.largest = func() int64 { return math.MaxInt64 }
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	if s.timeout == 0 {
		s.timeout = defaultStatementTimeout
	}
	if s.name == "" {
		s.name = "public"
	}
	if strings.ContainsRune(s.name, 0) {
		return nil, errors.New("read the schema's name: it contains a zero byte")
	}
	s.schema = pgx.Identifier{s.name}.Sanitize()
	switch cfg.Pooler {
	case PoolerAuto, "":
		s.auto = true
	case PoolerTransaction:
		s.pooled.Store(true)
	case PoolerNone:
	default:
		return nil, fmt.Errorf("read the pooler setting: %q is none of auto, none, transaction", cfg.Pooler)
	}
	pool, err := s.poolConfig(cfg)
	if err != nil {
		return nil, err
	}
	s.pool, err = pgxpool.NewWithConfig(context.Background(), pool)
	if err != nil {
		return nil, fmt.Errorf("prepare the connection pool: %w", err)
	}
	return s, nil
}

// Close ends all connections, after the calls under way.
func (s *Store) Close() { s.pool.Close() }

// Reset drops all connections: idle ones now, those in use after their call. The next call connects anew, and looks the address up again.
func (s *Store) Reset() { s.pool.Reset() }

// call is one statement of a batch. Its text says {schema} where the schema's quoted name goes, and {literal} where that goes inside a literal.
type call struct {
	sql  string
	args []any
	row  func(pgx.Rows) error // called for each row; nil: rows are thrown away
}

// run executes calls in one round trip and one transaction: all of them take effect, or none. Each statement has a snapshot of its own, as
// in READ COMMITTED. what is what an error says failed.
func (s *Store) run(ctx context.Context, what string, calls ...call) error {
	return s.runFor(ctx, what, s.timeout, calls...)
}

func (s *Store) runFor(ctx context.Context, what string, timeout time.Duration, calls ...call) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := s.acquire(ctx)
	if err != nil {
		return s.failed(what, err)
	}
	defer conn.Release()
	pooled := conn.Conn().Config().DefaultQueryExecMode == pgx.QueryExecModeExec
	var batch pgx.Batch
	if pooled {
		batch.Queue("BEGIN ISOLATION LEVEL READ COMMITTED")
		batch.Queue(planLocally)
	}
	for _, c := range calls {
		q := batch.Queue(s.text(c.sql), c.args...)
		if c.row != nil {
			q.Query(func(rows pgx.Rows) error {
				for rows.Next() {
					if err := c.row(rows); err != nil {
						return err
					}
				}
				return rows.Err()
			})
		}
	}
	if pooled {
		batch.Queue("COMMIT")
	}
	if err := conn.SendBatch(ctx, &batch).Close(); err != nil {
		return s.failed(what, err)
	}
	return nil
}

// inTx runs f in a transaction that may take several round trips, and a while.
func (s *Store) inTx(ctx context.Context, what string, f func(context.Context, pgx.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, decideTimeout)
	defer cancel()
	conn, err := s.acquire(ctx)
	if err != nil {
		return s.failed(what, err)
	}
	defer conn.Release()
	err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL statement_timeout = %d", decideTimeout.Milliseconds())); err != nil {
			return err
		}
		return f(ctx, tx)
	})
	if err != nil {
		return s.failed(what, err)
	}
	return nil
}

// acquire takes a connection. The first one may find out that there is a pooler in between: then it is tried again as one goes through it.
func (s *Store) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil && s.foundPooler(err) {
		conn, err = s.pool.Acquire(ctx)
	}
	return conn, err
}

// text is a statement with its schema filled in.
func (s *Store) text(statement string) string {
	if t, ok := s.texts.Load(statement); ok {
		return t.(string)
	}
	t := strings.NewReplacer("{schema}", s.schema, "{literal}", strings.ReplaceAll(s.schema, "'", "''")).Replace(statement)
	s.texts.Store(statement, t)
	return t
}
