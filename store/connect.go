package store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outlane/outlane/internal/pgurl"
)

// The settings under which every statement is planned. Each statement is written so that only one index can answer it without a sort, and
// these make that the only plan, whatever the statistics say: a table that was empty when a plan was cached may have a million rows now. JIT
// is off because a plan that cannot avoid what is switched off looks expensive enough to be compiled.
var planSettings = [][2]string{
	{"enable_seqscan", "off"},
	{"enable_bitmapscan", "off"},
	{"enable_sort", "off"},
	{"enable_hashjoin", "off"},
	{"enable_mergejoin", "off"},
	{"enable_material", "off"},
	{"enable_memoize", "off"},
	{"max_parallel_workers_per_gather", "0"},
	{"jit", "off"},
}

// planLocally sets planSettings for one transaction, where no session is ours to keep them.
var planLocally = func() string {
	parts := make([]string, len(planSettings))
	for i, p := range planSettings {
		parts[i] = fmt.Sprintf("set_config('%s', '%s', true)", p[0], p[1])
	}
	return "SELECT " + strings.Join(parts, ", ")
}()

// connectTimeout bounds the attempt at each host, unless the address says otherwise.
const connectTimeout = 5 * time.Second

// errSwallowed says that a startup parameter did not reach the server.
var errSwallowed = errors.New("a pooler in between swallows session settings")

// connectCheck is asked of each new connection. transaction_read_only is also on while a server recovers or stands by.
const connectCheck = "SELECT current_setting('transaction_read_only'), current_setting('enable_seqscan')"

func (s *Store) poolConfig(cfg Config) (*pgxpool.Config, error) {
	pool, err := pgxpool.ParseConfig(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("read the database's address: %w", pgurl.Check(cfg.URL, nil, err))
	}
	if err := pgurl.Check(cfg.URL, &pool.ConnConfig.Config, nil); err != nil {
		return nil, fmt.Errorf("read the database's address: %w", err)
	}
	pool.MaxConns = cfg.MaxConns
	if pool.MaxConns == 0 {
		pool.MaxConns = defaultMaxConns
	}
	c := pool.ConnConfig
	c.RuntimeParams["application_name"] = cfg.ApplicationName
	if cfg.ApplicationName == "" {
		c.RuntimeParams["application_name"] = "outlane"
	}
	c.RuntimeParams["client_encoding"] = "UTF8" // whatever the database's is
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = connectTimeout
	}
	// A peer that went silent is found within half a minute, also by a connection that only listens.
	dialer := &net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}}
	c.DialFunc = dialer.DialContext
	pool.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		s.asOneGoes(c)
		return nil
	}
	return pool, nil
}

// asOneGoes completes a connection's configuration for the way that leads to the database: direct, or through a pooler.
func (s *Store) asOneGoes(c *pgx.ConnConfig) {
	direct := !s.pooled.Load()
	if direct {
		for _, p := range planSettings {
			c.RuntimeParams[p[0]] = p[1]
		}
		c.RuntimeParams["plan_cache_mode"] = "force_generic_plan"
		c.RuntimeParams["default_transaction_isolation"] = "read committed"
		c.RuntimeParams["statement_timeout"] = strconv.FormatInt(s.timeout.Milliseconds(), 10)
		c.RuntimeParams["idle_in_transaction_session_timeout"] = strconv.FormatInt(s.timeout.Milliseconds(), 10)
		c.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	} else {
		c.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	validate := c.ValidateConnect
	c.ValidateConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		if validate != nil {
			if err := validate(ctx, conn); err != nil {
				return err
			}
		}
		results, err := conn.Exec(ctx, connectCheck).ReadAll()
		if err != nil {
			return err
		}
		row := results[0].Rows[0]
		if string(row[0]) == "on" {
			return ErrReadOnly
		}
		if direct && string(row[1]) != "off" {
			return errSwallowed
		}
		return nil
	}
}

// foundPooler says whether err showed that a pooler is in between. If the configuration leaves that open, connections are made accordingly from
// now on.
func (s *Store) foundPooler(err error) bool {
	if !s.auto || !isPooler(err) {
		return false
	}
	if s.pooled.CompareAndSwap(false, true) {
		s.log.Info("the database is behind a pooler in transaction mode: no prepared statements, no LISTEN")
	}
	return true
}

func isPooler(err error) bool {
	if errors.Is(err, errSwallowed) {
		return true
	}
	var e *pgconn.PgError
	return errors.As(err, &e) && e.Code == "08P01" && strings.Contains(e.Message, "startup parameter")
}
