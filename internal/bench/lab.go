package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outlane/outlane/internal/natsserver"
	"github.com/outlane/outlane/internal/postgres"
	"github.com/outlane/outlane/migrations"
)

// lab is the servers, and what is left of a section to clean up.
type lab struct {
	opts    Options
	began   time.Time
	section string
	dir     string

	pg         *postgres.Server
	pgVersion  string
	postmaster int // its process
	admin      *pgx.Conn
	templates  map[string]bool
	databases  int

	nats   *process
	natsAt string
	conn   *nats.Conn
	js     jetstream.JetStream

	open []*site
}

func open(ctx context.Context, opts Options) (_ *lab, err error) {
	l := &lab{opts: opts, began: time.Now(), section: "start", templates: map[string]bool{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	l.say("starting a private Postgres and a NATS server")
	if l.dir, err = os.MkdirTemp("", "outlane-bench-"); err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	if opts.Profile != "" {
		if l.opts.Profile, err = filepath.Abs(opts.Profile); err == nil {
			err = os.MkdirAll(l.opts.Profile, 0o755)
		}
		if err != nil {
			return nil, fmt.Errorf("make the folder for profiles: %w", err)
		}
	}
	if err := l.openPostgres(ctx); err != nil {
		return nil, err
	}
	if l.nats, l.natsAt, err = l.startChild("nats", order{NATS: &natsOrder{Options: natsserver.Options{StoreDir: filepath.Join(l.dir, "jetstream")}}}); err != nil {
		return nil, err
	}
	if l.conn, l.js, err = dial(l.natsAt); err != nil {
		return nil, err
	}
	return l, nil
}

func dial(url string) (*nats.Conn, jetstream.JetStream, error) {
	conn, err := nats.Connect(url, nats.MaxReconnects(-1), nats.Name("outlane bench"))
	if err != nil {
		return nil, nil, fmt.Errorf("connect to NATS: %w", err)
	}
	js, err := jetstream.New(conn)
	if err != nil {
		return nil, nil, fmt.Errorf("use JetStream: %w", err)
	}
	return conn, js, nil
}

func (l *lab) openPostgres(ctx context.Context) (err error) {
	l.pg, err = postgres.Start(ctx, postgres.Options{Settings: map[string]string{
		"fsync": "off", "full_page_writes": "off", "max_connections": "200", "shared_buffers": "512MB", "max_wal_size": "8GB",
		"checkpoint_timeout": "1h", // one that falls into somebody's run would be his bad luck; there is one before each run
	}})
	if err != nil {
		return fmt.Errorf("start Postgres: %w", err)
	}
	return l.meetPostgres(ctx)
}

func (l *lab) meetPostgres(ctx context.Context) (err error) {
	if l.admin, err = pgx.Connect(ctx, l.pg.URL("postgres")); err != nil {
		return fmt.Errorf("connect to Postgres: %w", err)
	}
	var pid int
	if err := l.admin.QueryRow(ctx, "SELECT pg_backend_pid(), current_setting('server_version')").Scan(&pid, &l.pgVersion); err != nil {
		return fmt.Errorf("ask Postgres who it is: %w", err)
	}
	l.postmaster, err = parent(pid)
	return err
}

// restartPostgres restarts the server with another setting. Nobody may be using it.
func (l *lab) restartPostgres(ctx context.Context, setting string) error {
	if _, err := l.admin.Exec(ctx, "ALTER SYSTEM "+setting); err != nil {
		return fmt.Errorf("change a setting: %w", err)
	}
	_ = l.admin.Close(ctx) // its server ends now
	l.pg.Stop(postgres.Fast)
	if err := l.pg.Start(ctx); err != nil {
		return fmt.Errorf("restart Postgres: %w", err)
	}
	return l.meetPostgres(ctx)
}

func (l *lab) versions() (postgres, nats string) { return l.pgVersion, server.VERSION }

// say tells what happens now.
func (l *lab) say(format string, args ...any) {
	if l.opts.Progress != nil {
		l.opts.Progress(fmt.Sprintf("%4.0fs %s: ", time.Since(l.began).Seconds(), l.section) + fmt.Sprintf(format, args...))
	}
}

// pick is the one for the run's size.
func pick[T any](l *lab, smoke, normal, full T) T { return [...]T{smoke, normal, full}[l.opts.Size] }

// repeats is how often each side of a ratio is measured.
func (l *lab) repeats() int { return pick(l, 1, 3, 5) }

// template makes a database once, to be copied for each run, and returns its name. fill may add rows to it.
func (l *lab) template(ctx context.Context, name string, partitions int, fill func(ctx context.Context, db *pgx.Conn) error) (string, error) {
	name = "template_" + name
	if l.templates[name] {
		return name, nil
	}
	if _, err := l.admin.Exec(ctx, "CREATE DATABASE "+name); err != nil {
		return "", fmt.Errorf("make a database: %w", err)
	}
	if _, err := migrations.Up(ctx, l.pg.URL(name), "public", migrations.Options{Partitions: partitions}); err != nil {
		return "", fmt.Errorf("migrate: %w", err)
	}
	if fill != nil {
		db, err := pgx.Connect(ctx, l.pg.URL(name))
		if err != nil {
			return "", fmt.Errorf("connect to Postgres: %w", err)
		}
		if err := errors.Join(fill(ctx, db), db.Close(ctx)); err != nil {
			return "", err
		}
	}
	l.templates[name] = true
	return name, nil
}

// dropTemplates frees the disk.
func (l *lab) dropTemplates(ctx context.Context) error {
	for name := range l.templates {
		if _, err := l.admin.Exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			return fmt.Errorf("drop a database: %w", err)
		}
		delete(l.templates, name)
	}
	return nil
}

// tidy removes what a section has left.
func (l *lab) tidy(ctx context.Context) error {
	for _, s := range slices.Clone(l.open) {
		if err := s.close(ctx); err != nil {
			return err
		}
	}
	return l.dropTemplates(ctx)
}

func (l *lab) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), goodbye)
	defer cancel()
	for _, s := range l.open {
		s.endProcesses()
	}
	var errs []error
	if l.conn != nil {
		l.conn.Close()
	}
	if l.nats != nil {
		errs = append(errs, l.nats.end())
	}
	if l.admin != nil {
		_ = l.admin.Close(ctx) // its server ends now
	}
	if l.pg != nil {
		errs = append(errs, l.pg.Close())
	}
	if l.dir != "" {
		errs = append(errs, os.RemoveAll(l.dir))
	}
	return errors.Join(errs...)
}

// wait calls ready every few milliseconds until it says yes.
func wait(ctx context.Context, what string, patience time.Duration, ready func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		ok, err := ready()
		if err != nil {
			return fmt.Errorf("wait for %s: %w", what, err)
		}
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}
