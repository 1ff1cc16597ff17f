package postgres_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/postgres"
)

// ceiling bounds every wait. It is generous: a loaded machine is no failure.
const ceiling = 2 * time.Minute

// childVariable makes this test program start a server, print where it is, and wait to be killed.
const childVariable = "OUTLANE_TEST_START_A_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) == "" {
		os.Exit(m.Run())
	}
	if err := startAndPrint(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	select {}
}

func startAndPrint(ctx context.Context) error {
	server, err := postgres.Start(ctx, postgres.Options{Settings: map[string]string{"fsync": "off"}})
	if err != nil {
		return err
	}
	bouncer, err := postgres.StartBouncer(ctx, server.URL("postgres"))
	if err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, server.URL("postgres"))
	if err != nil {
		return err
	}
	var dir string
	if err := conn.QueryRow(ctx, "SHOW data_directory").Scan(&dir); err != nil {
		return err
	}
	_, err = fmt.Println(server.URL("postgres"), bouncer.URL(), strings.TrimSuffix(dir, "/data"))
	return err
}

func start(t *testing.T) *postgres.Server {
	t.Helper()
	server, err := postgres.Start(deadline(t), postgres.Options{Settings: map[string]string{"fsync": "off", "cluster_name": "it's ours"}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	return server
}

func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), ceiling)
	t.Cleanup(cancel)
	return ctx
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(deadline(t), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func exec1(t *testing.T, url, statement string) {
	t.Helper()
	_, err := connect(t, url).Exec(deadline(t), statement)
	require.NoError(t, err)
}

func text(t *testing.T, url, query string) string {
	t.Helper()
	var s string
	require.NoError(t, connect(t, url).QueryRow(deadline(t), query).Scan(&s))
	return s
}

func TestStopAndStartKeepPortAndData(t *testing.T) {
	t.Parallel()
	s := start(t)
	url := s.URL("postgres")
	require.Equal(t, "it's ours", text(t, url, "SHOW cluster_name"))
	exec1(t, url, "CREATE TABLE a (n int)")
	for i, mode := range []postgres.Mode{postgres.Fast, postgres.Immediate, postgres.Kill} {
		exec1(t, url, "INSERT INTO a VALUES (1)")
		conn := connect(t, url)
		s.Stop(mode)
		_, err := conn.Exec(deadline(t), "SELECT 1")
		require.Error(t, err)
		_, err = pgx.Connect(deadline(t), url)
		require.Error(t, err)
		require.NoError(t, s.Start(deadline(t)))
		require.Equal(t, strconv.Itoa(i+1), text(t, url, "SELECT count(*)::text FROM a"))
	}
}

func TestFrozenServerIsSilentUntilThawed(t *testing.T) {
	t.Parallel()
	s := start(t)
	conn := connect(t, s.URL("postgres"))
	s.Freeze()
	answered := make(chan error, 1)
	go func() {
		_, err := conn.Exec(context.Background(), "SELECT 1")
		answered <- err
	}()
	short, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	_, err := pgx.Connect(short, s.URL("postgres"))
	require.Error(t, err)
	require.Empty(t, answered)
	s.Thaw()
	require.NoError(t, <-answered)
}

func TestFrozenServerCanBeClosed(t *testing.T) {
	t.Parallel()
	s, err := postgres.Start(deadline(t), postgres.Options{Settings: map[string]string{"fsync": "off"}})
	require.NoError(t, err)
	s.Freeze()
	require.NoError(t, s.Close())
}

func TestReplicaIsPromotedAndThePrimaryDemoted(t *testing.T) {
	t.Parallel()
	s := start(t)
	exec1(t, s.URL("postgres"), "CREATE TABLE a (n int)")
	r, err := s.Replica(deadline(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	exec1(t, s.URL("postgres"), "INSERT INTO a VALUES (1)")
	require.Eventually(t, func() bool { return text(t, r.URL("postgres"), "SELECT count(*)::text FROM a") == "1" }, ceiling, 5*time.Millisecond)
	refusesWrites(t, r.URL("postgres"))

	require.NoError(t, s.Demote(deadline(t)))
	refusesWrites(t, s.URL("postgres"))
	require.NoError(t, r.Promote(deadline(t)))
	exec1(t, r.URL("postgres"), "INSERT INTO a VALUES (2)")
}

func refusesWrites(t *testing.T, url string) {
	t.Helper()
	_, err := connect(t, url).Exec(deadline(t), "INSERT INTO a VALUES (3)")
	var pgErr *pgconn.PgError
	require.ErrorAs(t, err, &pgErr)
	require.Equal(t, "25006", pgErr.Code)
}

func TestServerDoesNotRunAsRoot(t *testing.T) {
	t.Parallel()
	s := start(t)
	conn := connect(t, s.URL("postgres"))
	var pid string
	require.NoError(t, conn.QueryRow(deadline(t), "SELECT pg_backend_pid()::text").Scan(&pid))
	status, err := os.ReadFile("/proc/" + pid + "/status")
	require.NoError(t, err)
	require.NotContains(t, string(status), "Uid:\t0\t")
}

func TestUnknownVersionIsNamed(t *testing.T) {
	t.Parallel()
	_, err := postgres.Start(deadline(t), postgres.Options{Version: "7"})
	require.ErrorIs(t, err, postgres.ErrNotInstalled)
	require.ErrorContains(t, err, "PostgreSQL 7")
}

func TestServerThatCannotStartSaysWhy(t *testing.T) {
	t.Parallel()
	_, err := postgres.Start(deadline(t), postgres.Options{Settings: map[string]string{"no_such_parameter": "1"}})
	require.ErrorContains(t, err, "no_such_parameter")
}

func TestKilledParentLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(deadline(t), self)
	cmd.Env = append(os.Environ(), childVariable+"=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	var url, bouncerURL, dir string
	_, err = fmt.Sscan(line, &url, &bouncerURL, &dir)
	require.NoError(t, err)
	require.DirExists(t, dir)
	conn := connect(t, url)
	connect(t, bouncerURL)

	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())

	require.Eventually(t, func() bool {
		_, err := os.Stat(dir)
		return os.IsNotExist(err)
	}, ceiling, 10*time.Millisecond)
	_, err = conn.Exec(deadline(t), "SELECT 1")
	require.Error(t, err)
	_, err = pgx.Connect(deadline(t), url)
	require.Error(t, err)
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", strings.Split(strings.TrimPrefix(bouncerURL, "postgres://postgres@"), "/")[0])
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	}, ceiling, 10*time.Millisecond)
}
