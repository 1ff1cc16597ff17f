package load

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outlane/outlane/internal/child"
	"github.com/outlane/outlane/internal/natsserver"
	"github.com/outlane/outlane/internal/postgres"
)

const (
	natsServers   = 3
	loopback      = "127.0.0.1"
	reconnectWait = 100 * time.Millisecond
)

// guardScript removes the folder of a process that is gone; the servers die with it.
const guardScript = `trap '' INT TERM HUP; read -r _; sleep 1; rm -rf "$1"`

// Servers are a Postgres and NATS servers, of this process or of somebody else.
type Servers struct {
	databaseURL string // of a database that is not a scenario's
	natsURL     string
	replicas    int // that a stream can have

	dir      string
	guard    *child.Guard
	postgres *postgres.Server
	nats     []*natsserver.Process
}

// Start runs a Postgres and three NATS servers that listen on an address of this machine.
func Start(ctx context.Context, address string) (_ *Servers, err error) {
	s := &Servers{replicas: natsServers}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.dir, err = os.MkdirTemp("", "outlane-e2e-nats-"); err != nil {
		return nil, fmt.Errorf("make a folder for NATS: %w", err)
	}
	if s.guard, err = child.StartGuard(guardScript, s.dir); err != nil {
		return nil, err
	}
	listen := address
	if address == loopback { // where it listens anyway
		listen = ""
	}
	s.postgres, err = postgres.Start(ctx, postgres.Options{Listen: listen, Settings: map[string]string{
		"fsync": "off", "full_page_writes": "off", "max_connections": "500", "shared_buffers": "256MB", "max_wal_size": "2GB",
	}})
	if err != nil {
		return nil, fmt.Errorf("start Postgres: %w", err)
	}
	s.databaseURL = fmt.Sprintf("postgres://postgres@%s:%d/postgres?sslmode=disable", address, s.postgres.Port)
	members, err := natsserver.ClusterOptions("e2e", natsServers)
	if err != nil {
		return nil, err
	}
	var urls []string
	for _, opt := range members {
		opt.Host = address
		opt.StoreDir, opt.LogFile = filepath.Join(s.dir, opt.Name), filepath.Join(s.dir, opt.Name+".log")
		p, err := natsserver.StartProcess(opt)
		if err != nil {
			return nil, err
		}
		s.nats, urls = append(s.nats, p), append(urls, p.URL())
	}
	s.natsURL = strings.Join(urls, ",")
	return s, s.awaitJetStream(ctx)
}

// Use takes servers that exist. The first address is that of any database, with the rights to make and drop others.
func Use(ctx context.Context, databaseURL, natsURL string) (*Servers, error) {
	s := &Servers{databaseURL: databaseURL, natsURL: natsURL, replicas: 1}
	conn, err := s.connect()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if len(conn.Servers()) >= natsServers {
		s.replicas = natsServers
	}
	return s, s.exec(ctx, "SELECT 1")
}

// awaitJetStream returns when the cluster has a leader.
func (s *Servers) awaitJetStream(ctx context.Context) error {
	conn, err := s.connect()
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return fmt.Errorf("use JetStream: %w", err)
	}
	return await(ctx, "the NATS servers find each other", func() error {
		limited, cancel := context.WithTimeout(ctx, time.Second) // a question that comes too early gets no answer
		defer cancel()
		_, err := js.AccountInfo(limited)
		return err
	})
}

func (s *Servers) connect() (*nats.Conn, error) {
	conn, err := nats.Connect(s.natsURL, nats.MaxReconnects(-1), nats.ReconnectWait(reconnectWait), nats.Name("outlane e2e"))
	if err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	return conn, nil
}

func (s *Servers) exec(ctx context.Context, statements ...string) error {
	conn, err := pgx.Connect(ctx, s.databaseURL)
	if err != nil {
		return fmt.Errorf("connect to Postgres: %w", err)
	}
	for _, statement := range statements {
		if _, err = conn.Exec(ctx, statement); err != nil {
			err = fmt.Errorf("%s: %w", statement, err)
			break
		}
	}
	return errors.Join(err, conn.Close(ctx))
}

// urlOf is the address of another database of the server.
func (s *Servers) urlOf(database string) (string, error) {
	u, err := url.Parse(s.databaseURL)
	if err != nil {
		return "", fmt.Errorf("read the database's address: %w", err)
	}
	u.Path = "/" + database
	return u.String(), nil
}

// Close ends the servers that Start began.
func (s *Servers) Close() error {
	for _, p := range s.nats {
		p.Kill()
	}
	var err error
	if s.postgres != nil {
		err = s.postgres.Close()
	}
	if s.guard != nil {
		err = errors.Join(err, s.guard.Close())
	}
	return err
}

// keepLogs copies the servers' logs.
func (s *Servers) keepLogs(dir string) error {
	if s.postgres == nil {
		return nil
	}
	err := os.WriteFile(filepath.Join(dir, "postgres.log"), []byte(s.postgres.Log()), 0o644)
	logs, _ := filepath.Glob(filepath.Join(s.dir, "*.log")) // the pattern is a constant, so never malformed
	for _, log := range logs {
		text, failed := os.ReadFile(filepath.Clean(log))
		err = errors.Join(err, failed, os.WriteFile(filepath.Join(dir, filepath.Base(log)), text, 0o644))
	}
	return err
}

// await returns when do returns no error. Its own error says what the last one was.
func await(ctx context.Context, what string, do func() error) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := do()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w: %w", what, ctx.Err(), err)
		}
	}
}
