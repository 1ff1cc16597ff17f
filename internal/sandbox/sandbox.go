// Package sandbox is what `outlane demo`, `outlane bench` and the chaos runs play in: a private Postgres, a NATS server in this process (or
// servers of the caller), a temporary folder, and outlane processes that use them.
//
// What it promises: Close ends and removes all of it, at any stage, and the servers and workers do not outlive this process (the workers on
// Linux only); if it is killed, its folder is left. Servers listen on 127.0.0.1 only. What it does not promise: durability; Postgres runs without fsync.
//
// A Sandbox is for one goroutine, but for what its connections allow.
package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outlane/outlane/internal/natsserver"
	"github.com/outlane/outlane/internal/postgres"
)

const (
	database      = "city"
	connections   = 30
	reconnectWait = 100 * time.Millisecond
	pingInterval  = 2 * time.Second // a frozen server is left soon
)

// Sandbox is the servers, and connections to them.
type Sandbox struct {
	DatabaseURL string
	NATSURL     string
	ConfigFile  string
	Postgres    *postgres.Server
	NATS        *natsserver.Server // nil if the servers are the caller's
	DB          *pgxpool.Pool
	JetStream   jetstream.JetStream
	Workers     []*Worker

	program string
	dir     string
	keepDir bool
	conn    *nats.Conn
}

// Options describe a sandbox.
type Options struct {
	Program string // the outlane executable
	Config  string // the text of the configuration file for the outlane processes
	// Dir is the folder for the workers' logs; it must exist, and Close leaves it. Empty: a temporary one, which Close removes.
	Dir string
	// NATSURL is the address of NATS servers that the caller runs, and stops after Close. Empty: the sandbox runs one.
	NATSURL string
}

// Start starts the servers. If something fails, nothing is left.
func Start(ctx context.Context, opts Options) (_ *Sandbox, err error) {
	s := &Sandbox{program: opts.Program, dir: opts.Dir, keepDir: opts.Dir != "", NATSURL: opts.NATSURL}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if !s.keepDir {
		if s.dir, err = os.MkdirTemp("", "outlane-sandbox-"); err != nil {
			return nil, fmt.Errorf("make a folder: %w", err)
		}
	}
	s.ConfigFile = filepath.Join(s.dir, "outlane.yaml")
	if err := os.WriteFile(s.ConfigFile, []byte(opts.Config), 0o644); err != nil {
		return nil, fmt.Errorf("write the configuration: %w", err)
	}
	if err := s.startPostgres(ctx); err != nil {
		return nil, err
	}
	if s.NATSURL == "" {
		s.NATS, err = natsserver.Start(natsserver.Options{StoreDir: filepath.Join(s.dir, "jetstream"), LogFile: filepath.Join(s.dir, "nats.log")})
		if err != nil {
			return nil, fmt.Errorf("start NATS: %w", err)
		}
		s.NATSURL = s.NATS.URL()
	}
	s.conn, err = nats.Connect(s.NATSURL, nats.MaxReconnects(-1), nats.ReconnectWait(reconnectWait), nats.Name("outlane sandbox"),
		nats.PingInterval(pingInterval))
	if err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	if s.JetStream, err = jetstream.New(s.conn); err != nil {
		return nil, fmt.Errorf("use JetStream: %w", err)
	}
	return s, nil
}

func (s *Sandbox) startPostgres(ctx context.Context) (err error) {
	s.Postgres, err = postgres.Start(ctx, postgres.Options{Settings: map[string]string{
		"fsync": "off", "full_page_writes": "off", "max_connections": "150", "max_prepared_transactions": "20", "shared_buffers": "128MB",
		"max_wal_size": "2GB",
	}})
	if err != nil {
		return fmt.Errorf("start Postgres: %w", err)
	}
	conn, err := pgx.Connect(ctx, s.Postgres.URL("postgres"))
	if err != nil {
		return fmt.Errorf("connect to Postgres: %w", err)
	}
	_, err = conn.Exec(ctx, "CREATE DATABASE "+database)
	if err := errors.Join(err, conn.Close(ctx)); err != nil {
		return fmt.Errorf("create the database: %w", err)
	}
	s.DatabaseURL = s.Postgres.URL(database)
	cfg, err := pgxpool.ParseConfig(s.DatabaseURL)
	if err != nil {
		return fmt.Errorf("read the database's address: %w", err)
	}
	cfg.MaxConns = connections
	if s.DB, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return fmt.Errorf("connect to Postgres: %w", err)
	}
	return nil
}

// Command runs an outlane command that is expected to succeed.
func (s *Sandbox) Command(ctx context.Context, args ...string) error {
	_, err := s.Output(ctx, args...)
	return err
}

// Output runs an outlane command that is expected to succeed, and returns what it prints.
func (s *Sandbox) Output(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, s.program, args...)
	cmd.Env = s.environment()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("run outlane %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}

// environment is what an outlane process of the sandbox runs with: this one's, without any setting of Outlane, and where things are.
func (s *Sandbox) environment() []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "OUTLANE_") {
			env = append(env, e)
		}
	}
	return append(env, "OUTLANE_DATABASE_URL="+s.DatabaseURL, "OUTLANE_NATS_URL="+s.NATSURL, "OUTLANE_CONFIG="+s.ConfigFile)
}

// Stored counts the messages of all streams. A server that is away makes it fail soon.
func (s *Sandbox) Stored(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var n int64
	list := s.JetStream.ListStreams(ctx)
	for info := range list.Info() {
		n += int64(info.State.Msgs)
	}
	if err := list.Err(); err != nil && !errors.Is(err, jetstream.ErrEndOfData) {
		return 0, fmt.Errorf("list the streams: %w", err)
	}
	return n, nil
}

// Claim is the latest claim of a partition.
type Claim struct {
	Member string // a worker's ID with a suffix of its own for each process
	At     time.Time
}

// Claims returns the partitions that somebody has claimed.
func (s *Sandbox) Claims(ctx context.Context) (map[int]Claim, error) {
	rows, err := s.DB.Query(ctx, "SELECT partition, owner, claimed_at FROM outlane_partitions WHERE owner IS NOT NULL")
	if err != nil {
		return nil, fmt.Errorf("ask for the partitions' owners: %w", err)
	}
	defer rows.Close()
	claims := map[int]Claim{}
	for rows.Next() {
		var (
			part int
			c    Claim
		)
		if err := rows.Scan(&part, &c.Member, &c.At); err != nil {
			return nil, fmt.Errorf("read the partitions' owners: %w", err)
		}
		claims[part] = c
	}
	return claims, rows.Err()
}

// Close ends everything and removes the folder, unless it is the caller's.
func (s *Sandbox) Close() error {
	_ = s.StopWorkers() // whoever wants to know how they end stops them before
	if s.conn != nil {
		s.conn.Close()
	}
	if s.DB != nil {
		s.DB.Close()
	}
	if s.NATS != nil {
		s.NATS.Close()
	}
	var err error
	if s.Postgres != nil {
		err = s.Postgres.Close()
	}
	if s.keepDir {
		return err
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}
