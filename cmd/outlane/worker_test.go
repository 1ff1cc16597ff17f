package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/natstest"
	"github.com/outlane/outlane/internal/pgtest"
)

// process is a run of the program that goes on.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
	mu   sync.Mutex
	text bytes.Buffer // both outputs
}

func (p *process) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(text)
}

func (p *process) lines() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Split(strings.TrimSuffix(p.text.String(), "\n"), "\n")
}

// find waits for a log line with this message, and returns its fields.
func (p *process) find(t *testing.T, message string) map[string]any {
	t.Helper()
	var found map[string]any
	require.Eventually(t, func() bool {
		for _, line := range p.lines() {
			var fields map[string]any
			if json.Unmarshal([]byte(line), &fields) == nil && fields["msg"] == message {
				found = fields
				return true
			}
		}
		return false
	}, ceiling, 10*time.Millisecond, "no log line %q", message)
	return found
}

// stop sends a signal and returns the exit code.
func (p *process) stop(t *testing.T, signal os.Signal) int {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(signal))
	select {
	case <-p.done:
	case <-time.After(ceiling):
		require.Fail(t, "it does not stop", strings.Join(p.lines(), "\n"))
	}
	return p.cmd.ProcessState.ExitCode()
}

// start runs the program until the test ends.
func start(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(binary, args...), done: make(chan struct{})}
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = env, p, p
	require.NoError(t, p.cmd.Start())
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // the exit code is looked at
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
	})
	return p
}

type answer struct {
	code int
	body string
}

// get asks a worker. A code of 0 means that there was no answer.
func get(addr any, path string) answer {
	response, err := http.Get(fmt.Sprintf("http://%s%s", addr, path))
	if err != nil {
		return answer{body: err.Error()}
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{body: err.Error()}
	}
	return answer{response.StatusCode, string(body)}
}

func makeStream(t *testing.T, url, name string, subjects ...string) jetstream.Stream {
	t.Helper()
	s, err := natstest.JetStream(t, url).CreateStream(context.Background(), jetstream.StreamConfig{
		Name: name, Subjects: subjects, Storage: jetstream.MemoryStorage, Duplicates: 2 * time.Minute,
	})
	require.NoError(t, err)
	return s
}

func TestWorkerDeliversWithoutAConfigurationFile(t *testing.T) {
	t.Parallel()
	db, nats := pgtest.Migrated(t, 4), natstest.Start(t)
	stream := makeStream(t, nats.URL, "PAY", "pay.>")
	p := start(t, []string{
		"OUTLANE_DATABASE_URL=" + db, "OUTLANE_NATS_URL=" + nats.URL, "OUTLANE_HTTP_ADDR=127.0.0.1:0", "OUTLANE_WORKER_ID=w1",
	}, "worker")
	addr := p.find(t, "serving probes and metrics")["addr"]
	require.Eventually(t, func() bool { return get(addr, "/readyz").code == http.StatusOK }, ceiling, 10*time.Millisecond)

	pgtest.Exec(t, db, `INSERT INTO outbox_events (id, stream, topic, payload) VALUES ('named', 'PAY', 'pay.out', '{"team_id": "a"}')`,
		`INSERT INTO outbox_events (id, topic, payload) VALUES ('found', 'pay.in', '{"team_id": "b"}')`)
	require.Eventually(t, func() bool {
		info, err := stream.Info(context.Background())
		return err == nil && info.State.Msgs == 2
	}, ceiling, 10*time.Millisecond)
	require.Contains(t, get(addr, "/metrics").body, "outlane_partitions_owned 4")
	require.Contains(t, get(addr, "/metrics").body, "go_goroutines ")
	require.Contains(t, get(addr, "/metrics").body, "process_resident_memory_bytes ")

	var r report
	require.NoError(t, json.Unmarshal([]byte(outlane(t, []string{"OUTLANE_DATABASE_URL=" + db}, "status", "-o", "json").out), &r))
	require.Len(t, r.Members, 1)
	require.True(t, strings.HasPrefix(r.Members[0].ID, "w1-"), r.Members[0].ID)
	require.Equal(t, 4, r.Members[0].Partitions)

	require.Zero(t, p.stop(t, syscall.SIGTERM))
	for _, line := range p.lines() {
		require.True(t, json.Valid([]byte(line)), line)
	}
}

func TestWorkerWaitsForItsServersAndHidesSecrets(t *testing.T) {
	t.Parallel()
	p := start(t, []string{
		"OUTLANE_DATABASE_URL=postgres://app:hunter2@127.0.0.1:1/d", "OUTLANE_NATS_URL=nats://u:hunter3@127.0.0.1:1",
		"OUTLANE_HTTP_ADDR=127.0.0.1:0", "OUTLANE_LOG_LEVEL=debug",
	}, "worker")
	addr := p.find(t, "serving probes and metrics")["addr"]
	p.find(t, "Postgres does not answer; delivery waits")
	ready := get(addr, "/readyz")
	require.Equal(t, http.StatusServiceUnavailable, ready.code)
	require.Contains(t, ready.body, "postgres:")
	require.Contains(t, ready.body, "nats:")
	require.Zero(t, p.stop(t, syscall.SIGTERM))
	require.NotContains(t, ready.body+strings.Join(p.lines(), "\n"), "hunter")
}

func TestWorkerThatCannotStart(t *testing.T) {
	t.Parallel()
	nats := "OUTLANE_NATS_URL=nats://127.0.0.1:1"
	free := "OUTLANE_HTTP_ADDR=127.0.0.1:0"

	r := outlane(t, []string{"OUTLANE_DATABASE_URL=" + pgtest.Database(t), nats, free}, "worker")
	require.Equal(t, 1, r.code, r.err)
	require.Contains(t, r.err, "run outlane migrate up")

	r = outlane(t, []string{"OUTLANE_DATABASE_URL=" + pgtest.Migrated(t, 4), nats, free}, "worker", "--partitions=8")
	require.Equal(t, 1, r.code, r.err)
	require.Contains(t, r.err, "configured for 8 partitions, the database has 4")

	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = taken.Close() }()
	r = outlane(t, []string{"OUTLANE_DATABASE_URL=postgres://127.0.0.1:1/d", nats}, "worker", "--http-addr="+taken.Addr().String())
	require.Equal(t, 1, r.code, r.err)
	require.Contains(t, r.err, "address already in use; choose another http.addr")
}

func TestSecondSignalEndsADrain(t *testing.T) {
	t.Parallel()
	db, nats := pgtest.Migrated(t, 1), natstest.StartProcess(t)
	makeStream(t, nats.URL, "PAY", "pay.>")
	p := start(t, []string{
		"OUTLANE_DATABASE_URL=" + db, "OUTLANE_NATS_URL=" + nats.URL, "OUTLANE_HTTP_ADDR=127.0.0.1:0",
		"OUTLANE_NATS_ACK_TIMEOUT=20s", "OUTLANE_WORKER_DRAIN_TIMEOUT=1h",
	}, "worker")
	addr := p.find(t, "serving probes and metrics")["addr"]
	insert := func(id string) {
		pgtest.Exec(t, db, `INSERT INTO outbox_events (id, stream, topic, payload) VALUES ('`+id+`', 'PAY', 'pay.out', '{}')`)
	}
	published := func() bool {
		return strings.Contains(get(addr, "/metrics").body, `outlane_events_published_total{stream="PAY"} 1`)
	}
	insert("first")
	require.Eventually(t, published, ceiling, 10*time.Millisecond)
	nats.Freeze(t)
	insert("stays under way")
	require.Eventually(t, func() bool {
		answer := get(addr, "/metrics")
		return answer.code == http.StatusOK && !strings.Contains(answer.body, "\noutlane_memory_bytes 0\n")
	}, ceiling, 10*time.Millisecond)
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	require.Equal(t, 1, p.stop(t, os.Interrupt))
}
