package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outlane/outlane/internal/natsserver"
	"github.com/outlane/outlane/internal/postgres"
)

// servers are the private servers, and the demo's own connections to them.
type servers struct {
	databaseURL string
	postgres    *postgres.Server
	nats        *natsserver.Server
	db          *pgxpool.Pool
	conn        *nats.Conn
	js          jetstream.JetStream
}

// startServers starts both. If one fails, the other is stopped.
func startServers(ctx context.Context, dir string) (_ *servers, err error) {
	s := &servers{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	s.postgres, err = postgres.Start(ctx, postgres.Options{Settings: map[string]string{
		"fsync": "off", "full_page_writes": "off", "max_connections": "100", "shared_buffers": "128MB", "max_wal_size": "2GB",
	}})
	if err != nil {
		return nil, fmt.Errorf("start Postgres: %w", err)
	}
	const database = "city"
	if err := createDatabase(ctx, s.postgres.URL("postgres"), database); err != nil {
		return nil, err
	}
	s.databaseURL = s.postgres.URL(database)
	s.nats, err = natsserver.Start(natsserver.Options{StoreDir: filepath.Join(dir, "jetstream"), LogFile: filepath.Join(dir, "nats.log")})
	if err != nil {
		return nil, fmt.Errorf("start NATS: %w", err)
	}
	return s, nil
}

func createDatabase(ctx context.Context, url, name string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("connect to Postgres: %w", err)
	}
	_, err = conn.Exec(ctx, "CREATE DATABASE "+name)
	if err := errors.Join(err, conn.Close(ctx)); err != nil {
		return fmt.Errorf("create the database: %w", err)
	}
	return nil
}

// connect opens the demo's own connections, and makes the table that the city's transactions write besides the outbox.
func (s *servers) connect(ctx context.Context) error {
	var err error
	if s.db, err = pgxpool.New(ctx, s.databaseURL+poolSize(s.databaseURL)); err != nil {
		return fmt.Errorf("connect to Postgres: %w", err)
	}
	const ledger = `CREATE TABLE city_ledger (
		id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
		team   text NOT NULL,
		what   text NOT NULL,
		amount bigint NOT NULL,
		at     timestamptz NOT NULL DEFAULT now()
	)`
	if _, err := s.db.Exec(ctx, ledger); err != nil {
		return fmt.Errorf("create the city's ledger: %w", err)
	}
	if s.conn, err = nats.Connect(s.nats.URL(), nats.MaxReconnects(-1), nats.ReconnectWait(reconnectWait), nats.Name("outlane demo")); err != nil {
		return fmt.Errorf("connect to NATS: %w", err)
	}
	if s.js, err = jetstream.New(s.conn); err != nil {
		return fmt.Errorf("use JetStream: %w", err)
	}
	return nil
}

func poolSize(url string) string {
	if strings.Contains(url, "?") {
		return "&pool_max_conns=30"
	}
	return "?pool_max_conns=30"
}

// stored counts the messages of all streams.
func (s *servers) stored(ctx context.Context) (int64, error) {
	var n int64
	list := s.js.ListStreams(ctx)
	for info := range list.Info() {
		n += int64(info.State.Msgs)
	}
	if err := list.Err(); err != nil && !errors.Is(err, jetstream.ErrEndOfData) {
		return 0, fmt.Errorf("list the streams: %w", err)
	}
	return n, nil
}

// environment is what an outlane process of the demo runs with: this one's, without any setting of Outlane, and where things are.
func (s *servers) environment(config string) []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "OUTLANE_") {
			env = append(env, e)
		}
	}
	return append(env, "OUTLANE_DATABASE_URL="+s.databaseURL, "OUTLANE_NATS_URL="+s.nats.URL(), "OUTLANE_CONFIG="+config)
}

// command runs an outlane command that is expected to succeed.
func (d *demo) command(ctx context.Context, env []string, args ...string) error {
	cmd := exec.CommandContext(ctx, d.opts.Program, args...)
	cmd.Env = env
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("run outlane %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// close ends connections and servers. It can be called at any stage, and on nil.
func (s *servers) close() error {
	if s == nil {
		return nil
	}
	if s.conn != nil {
		s.conn.Close()
	}
	if s.db != nil {
		s.db.Close()
	}
	if s.nats != nil {
		s.nats.Close()
	}
	if s.postgres != nil {
		return s.postgres.Close()
	}
	return nil
}
