package load_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/e2e/load"
	"github.com/outlane/outlane/internal/child"
	"github.com/outlane/outlane/internal/natsserver"
)

const ceiling = 2 * time.Minute

func TestMain(m *testing.M) {
	natsserver.ServeChild()
	os.Exit(m.Run())
}

// outlane is how the test runs the program, as the chart does.
type outlane struct {
	*testing.T
	program string
	env     []string
}

func (o outlane) run(args ...string) {
	o.Helper()
	cmd := exec.Command(o.program, args...)
	cmd.Env = append(os.Environ(), o.env...)
	out, err := cmd.CombinedOutput()
	require.NoError(o, err, "%v: %s", args, out)
}

// TestFlow proves that what the producers insert arrives, and that the check sees it.
func TestFlow(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), ceiling)
	defer cancel()
	program := filepath.Join(t.TempDir(), "outlane")
	build := exec.Command("go", "build", "-o", program, "./cmd/outlane")
	build.Dir = "../.."
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))

	servers, err := load.Start(ctx, "127.0.0.1")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, servers.Close()) })
	site, err := servers.Site(ctx, "flow")
	require.NoError(t, err)
	t.Cleanup(site.Close)
	config, err := json.Marshal(map[string]any{"streams": site.Streams, "http": map[string]any{"addr": "127.0.0.1:0"}})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "outlane.yaml")
	require.NoError(t, os.WriteFile(file, config, 0o644))
	o := outlane{t, program, []string{"OUTLANE_DATABASE_URL=" + site.DatabaseURL, "OUTLANE_NATS_URL=" + site.NATSURL, "OUTLANE_CONFIG=" + file}}
	o.run("migrate", "up")
	o.run("streams", "apply")
	worker, err := child.Launch(filepath.Join(t.TempDir(), "worker.log"), o.env, program, "worker")
	require.NoError(t, err)
	t.Cleanup(worker.Kill)

	began := time.Now()
	flow := site.Steady(ctx, 500)
	require.Eventually(t, func() bool { return site.Committed() > 1000 }, ceiling, 10*time.Millisecond)
	worker.Kill()
	require.NoError(t, site.Burst(ctx, 6400))
	wanted, err := site.Wanted(ctx, 640)
	require.NoError(t, err)
	require.GreaterOrEqual(t, wanted, 10)
	require.Greater(t, site.Longest(began, time.Now()), time.Duration(0))
	worker, err = child.Launch(filepath.Join(t.TempDir(), "worker.log"), o.env, program, "worker")
	require.NoError(t, err)
	require.NoError(t, site.BurstOneKey(ctx, 1000))
	require.NoError(t, flow.Await(ctx, time.Now()))
	require.NoError(t, flow.Stop())
	require.NoError(t, site.Settle(ctx))
	verdict, err := site.Check(ctx)
	require.NoError(t, err)
	require.True(t, verdict.Clean(), verdict.String())
	t.Log(verdict, "longest", site.Longest(began, time.Now()))
	require.Equal(t, verdict.Committed, verdict.Stored)
	require.Positive(t, verdict.RolledBack)
	require.NoError(t, site.Keep(ctx, t.TempDir()))

	t.Run("servers of somebody else", func(t *testing.T) {
		theirs, err := load.Use(ctx, site.DatabaseURL, site.NATSURL)
		require.NoError(t, err)
		other, err := theirs.Site(ctx, "other")
		require.NoError(t, err)
		defer other.Close()
		require.Equal(t, 3, other.Streams[0]["replicas"])
		require.NoError(t, other.DB.Ping(ctx))
	})

	t.Run("a fault is found", func(t *testing.T) {
		worker.Signal(syscall.SIGTERM)
		<-worker.Done()
		require.NoError(t, site.Burst(ctx, 1))
		_, err := site.DB.Exec(ctx, "UPDATE outbox_events SET processed = true WHERE NOT processed")
		require.NoError(t, err)
		verdict, err := site.Check(ctx)
		require.NoError(t, err)
		require.False(t, verdict.Clean())
		require.Contains(t, verdict.String(), "1 events were committed and not stored")
	})
}
