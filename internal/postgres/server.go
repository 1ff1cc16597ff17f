package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outlane/outlane/internal/port"
)

// Options say what server to start. The zero value is a server of the newest installed version with PostgreSQL's own settings.
type Options struct {
	// Version is a major version such as "16". Empty: the environment variable PG, else the newest that is installed.
	Version string
	// Settings are configuration parameters, such as {"fsync": "off"}.
	Settings map[string]string
	// Listen is a further address of this machine to listen on, from which anybody is let in as the superuser without a password. Empty: none.
	Listen string
}

// Mode is a way to stop a server.
type Mode int

const (
	// Fast ends all sessions and shuts down cleanly.
	Fast Mode = iota
	// Immediate ends at once without a checkpoint; the next Start recovers from the log.
	Immediate
	// Kill is SIGKILL for every process of the server, as when the machine dies. What fsync=off left unwritten survives, since the kernel does.
	Kill
)

// Server is a PostgreSQL server that this process started.
type Server struct {
	// Port is the TCP port on 127.0.0.1. It stays the same over Stop and Start.
	Port int

	bin, dir string
	cred     *syscall.Credential
	guard    io.Closer
	listen   string // as in Options

	mu   sync.Mutex
	proc *process
}

const startAttempts = 5

// Start makes a new, empty cluster and starts a server on it. It returns when the server accepts connections. The context bounds the
// start only; the caller ends the server by Close.
func Start(ctx context.Context, opts Options) (*Server, error) {
	s, err := prepare(opts.Version)
	if err != nil {
		return nil, err
	}
	s.listen = opts.Listen
	if err := s.create(ctx, opts.Settings); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Server) create(ctx context.Context, settings map[string]string) error {
	if err := s.run(ctx, "initdb", "--pgdata", s.data(), "--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C",
		"--no-sync", "--no-instructions"); err != nil {
		return err
	}
	var conf strings.Builder
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&conf, "%s = '%s'\n", name, strings.ReplaceAll(settings[name], "'", "''"))
	}
	if err := s.addTo("postgresql.conf", conf.String()); err != nil {
		return err
	}
	if s.listen != "" {
		if err := s.addTo("pg_hba.conf", "host all all all trust\n"); err != nil {
			return err
		}
	}
	return s.startAnywhere(ctx)
}

func prepare(version string) (*Server, error) {
	bin, err := BinDir(version)
	if err != nil {
		return nil, err
	}
	cred, err := account()
	if err != nil {
		return nil, err
	}
	dir, guard, err := newFolder("outlane-pg-", cred)
	if err != nil {
		return nil, err
	}
	return &Server{bin: bin, dir: dir, cred: cred, guard: guard}, nil
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

func (s *Server) run(ctx context.Context, program string, args ...string) error {
	out, err := command(ctx, s.dir, s.cred, filepath.Join(s.bin, program), args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("run %s: %w: %s", program, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// addTo adds lines to a configuration file.
func (s *Server) addTo(name, lines string) error {
	f, err := os.OpenFile(filepath.Join(s.data(), name), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("open the server's configuration: %w", err)
	}
	_, err = f.WriteString("\n" + lines)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write the server's configuration: %w", err)
	}
	return nil
}

// startAnywhere starts the server on a free port; another process may take a port between the look and the start.
func (s *Server) startAnywhere(ctx context.Context) error {
	var err error
	for range startAttempts {
		if s.Port, err = port.Reserve(); err != nil {
			return err
		}
		if err = s.Start(ctx); err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "could not bind") {
			return err
		}
	}
	return err
}

// Start starts a stopped server again, on the same port and data, and returns when it accepts connections. On a running server it does nothing.
func (s *Server) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running() {
		return nil
	}
	sockets := s.dir
	if len(sockets) > 80 { // a socket's path has at most 107 bytes
		sockets = ""
	}
	listen := "127.0.0.1"
	if s.listen != "" {
		listen += "," + s.listen
	}
	proc, err := launch(s.dir, s.cred, filepath.Join(s.bin, "postgres"), "-D", s.data(), "-p", strconv.Itoa(s.Port),
		"-c", "listen_addresses="+listen, "-c", "unix_socket_directories="+sockets, "-c", "logging_collector=off")
	if err != nil {
		return err
	}
	s.proc = proc
	if err := s.await(ctx); err != nil {
		proc.stop(syscall.SIGQUIT, false)
		return err
	}
	return nil
}

// await waits until a session can be opened.
func (s *Server) await(ctx context.Context) error {
	for {
		conn, err := pgx.Connect(ctx, s.URL("postgres"))
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-s.proc.done:
			return fmt.Errorf("start postgres: it ended at once: %s", s.proc.tail())
		case <-ctx.Done():
			return fmt.Errorf("wait for postgres to accept connections: %w: %s", ctx.Err(), s.proc.tail())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (s *Server) running() bool {
	if s.proc == nil {
		return false
	}
	select {
	case <-s.proc.done:
		return false
	default:
		return true
	}
}

// URL is the connection URL of a database, as the superuser.
func (s *Server) URL(database string) string {
	u := url.URL{Scheme: "postgres", User: url.User("postgres"), Host: "127.0.0.1:" + strconv.Itoa(s.Port), Path: "/" + database,
		RawQuery: "sslmode=disable"}
	return u.String()
}

// Log returns the last lines that the server wrote.
func (s *Server) Log() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return ""
	}
	return s.proc.tail()
}

// Stop stops the server and returns when all its processes have ended. On a stopped server it does nothing.
func (s *Server) Stop(mode Mode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop(mode)
}

func (s *Server) stop(mode Mode) {
	if !s.running() {
		return
	}
	switch mode {
	case Fast:
		s.proc.stop(syscall.SIGINT, false)
	case Immediate:
		s.proc.stop(syscall.SIGQUIT, false)
	case Kill:
		s.proc.stop(syscall.SIGKILL, true)
	}
}

// Freeze suspends every process of the server: its sockets stay open and go silent, as when the machine behind them is cut off.
func (s *Server) Freeze() {
	s.signalAll(syscall.SIGSTOP)
}

// Thaw ends a Freeze.
func (s *Server) Thaw() {
	s.signalAll(syscall.SIGCONT)
}

func (s *Server) signalAll(sig syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running() {
		return
	}
	for _, pid := range s.proc.family() {
		_ = syscall.Kill(pid, sig) // a child may just have ended
	}
}

// Replica starts a second server as a hot standby that streams from this one, which must run with wal_level=replica.
func (s *Server) Replica(ctx context.Context) (*Server, error) {
	cred, err := account()
	if err != nil {
		return nil, err
	}
	dir, guard, err := newFolder("outlane-pg-", cred)
	if err != nil {
		return nil, err
	}
	r := &Server{bin: s.bin, dir: dir, cred: cred, guard: guard}
	err = r.run(ctx, "pg_basebackup", "--dbname", s.URL("postgres"), "--pgdata", r.data(), "--write-recovery-conf", "--checkpoint=fast",
		"--wal-method=stream", "--no-sync")
	if err == nil {
		err = r.startAnywhere(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start a replica: %w", err), r.Close())
	}
	return r, nil
}

// Promote makes a replica a primary, and returns when it accepts writes.
func (s *Server) Promote(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return fmt.Errorf("connect to the replica: %w", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	var promoted bool
	if err := conn.QueryRow(ctx, "SELECT pg_promote()").Scan(&promoted); err != nil {
		return fmt.Errorf("promote the replica: %w", err)
	}
	if !promoted {
		return errors.New("promote the replica: the server did not do it in time")
	}
	return nil
}

// Demote restarts the server as a standby that follows nobody: what a failover leaves of an old primary. It reads, and refuses writes
// with SQLSTATE 25006.
func (s *Server) Demote(ctx context.Context) error {
	s.Stop(Fast)
	if err := os.WriteFile(filepath.Join(s.data(), "standby.signal"), nil, 0o644); err != nil {
		return fmt.Errorf("mark the server a standby: %w", err)
	}
	return s.Start(ctx)
}

// Close ends the server at once, removes its folder, and returns when both are done.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop(Immediate)
	err := os.RemoveAll(s.dir)
	return errors.Join(err, s.guard.Close())
}
