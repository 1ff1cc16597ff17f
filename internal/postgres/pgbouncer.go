package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outlane/outlane/internal/port"
)

// Bouncer is a pgbouncer in transaction mode that this process started.
type Bouncer struct {
	dir    string
	guard  io.Closer
	proc   *process
	target *url.URL
	port   int
}

// StartBouncer starts pgbouncer in front of a server, given by a URL of its superuser, and returns when a session can be opened through it.
// Every role of the server is let in without a password. Startup parameters are handled as the package's default has it: unknown ones
// are refused. The error wraps ErrNotInstalled when there is no pgbouncer.
func StartBouncer(ctx context.Context, target string) (*Bouncer, error) {
	u, err := url.Parse(target)
	if err != nil {
		return nil, errors.New("read the target's URL: it is malformed")
	}
	program, err := bouncerProgram()
	if err != nil {
		return nil, err
	}
	cred, err := account()
	if err != nil {
		return nil, err
	}
	dir, guard, err := newFolder("outlane-pgbouncer-", cred)
	if err != nil {
		return nil, err
	}
	b := &Bouncer{dir: dir, guard: guard, target: u}
	for range startAttempts {
		if b.port, err = port.Reserve(); err != nil {
			break
		}
		if err = b.start(ctx, program, cred); err == nil {
			return b, nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(err, b.Close())
}

func bouncerProgram() (string, error) {
	if path, err := exec.LookPath("pgbouncer"); err == nil {
		return path, nil
	}
	const debian = "/usr/sbin/pgbouncer" // not in every user's PATH
	if _, err := os.Stat(debian); err == nil {
		return debian, nil
	}
	return "", fmt.Errorf("find pgbouncer: %w", ErrNotInstalled)
}

func (b *Bouncer) start(ctx context.Context, program string, cred *syscall.Credential) error {
	conf := strings.Join([]string{
		"[databases]",
		fmt.Sprintf("* = host=%s port=%s auth_user=%s", b.target.Hostname(), b.target.Port(), b.target.User.Username()),
		"[pgbouncer]",
		"listen_addr = 127.0.0.1",
		"listen_port = " + strconv.Itoa(b.port),
		"unix_socket_dir =",
		"auth_type = trust",
		"auth_file = " + filepath.Join(b.dir, "users.txt"),
		"auth_query = SELECT usename, coalesce(passwd, '') FROM pg_shadow WHERE usename = $1",
		"pool_mode = transaction",
		"default_pool_size = 20",
		"max_client_conn = 500",
		"pidfile = " + filepath.Join(b.dir, "pgbouncer.pid"),
		"",
	}, "\n")
	if err := os.WriteFile(filepath.Join(b.dir, "pgbouncer.ini"), []byte(conf), 0o644); err != nil {
		return fmt.Errorf("write pgbouncer's configuration: %w", err)
	}
	users := fmt.Sprintf("\"%s\" \"\"\n", b.target.User.Username())
	if err := os.WriteFile(filepath.Join(b.dir, "users.txt"), []byte(users), 0o644); err != nil {
		return fmt.Errorf("write pgbouncer's user list: %w", err)
	}
	var err error
	if b.proc, err = launch(b.dir, cred, program, filepath.Join(b.dir, "pgbouncer.ini")); err != nil {
		return err
	}
	if err := b.await(ctx); err != nil {
		b.proc.stop(syscall.SIGKILL, false)
		return err
	}
	return nil
}

func (b *Bouncer) await(ctx context.Context) error {
	for {
		conn, err := pgx.Connect(ctx, b.URL())
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-b.proc.done:
			return fmt.Errorf("start pgbouncer: it ended at once: %s", b.proc.tail())
		case <-ctx.Done():
			return fmt.Errorf("wait for pgbouncer: %w: %s", ctx.Err(), b.proc.tail())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// URL is the target's URL with pgbouncer's address in it.
func (b *Bouncer) URL() string {
	u := *b.target
	u.Host = net.JoinHostPort("127.0.0.1", strconv.Itoa(b.port))
	return u.String()
}

// Close ends pgbouncer at once and removes its folder.
func (b *Bouncer) Close() error {
	if b.proc != nil {
		b.proc.stop(syscall.SIGKILL, false)
	}
	err := os.RemoveAll(b.dir)
	return errors.Join(err, b.guard.Close())
}
