package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/controlplane"
	"github.com/outlane/outlane/internal/kubetest"
	"github.com/outlane/outlane/internal/natstest"
	"github.com/outlane/outlane/internal/pgtest"
)

const tick = 10 * time.Millisecond

// onKubernetes is the environment of a worker, and of status, that keeps leases in a namespace.
func onKubernetes(db, nats string, cluster *kubetest.Cluster, namespace string, more ...string) []string {
	return append([]string{
		"OUTLANE_DATABASE_URL=" + db, "OUTLANE_NATS_URL=" + nats, "OUTLANE_HTTP_ADDR=127.0.0.1:0", "OUTLANE_LEASE_BACKEND=kubernetes",
		"OUTLANE_LEASE_NAMESPACE=" + namespace, "KUBECONFIG=" + cluster.Kubeconfig(controlplane.Admin), "OUTLANE_LEASE_DURATION=2s",
	}, more...)
}

func TestWorkerOnKubernetes(t *testing.T) {
	t.Parallel()
	cluster := kubetest.StartCluster(t)
	namespace := cluster.Namespace(t)
	db, nats := pgtest.Migrated(t, 4), natstest.Start(t)
	stream := makeStream(t, nats.URL, "PAY", "pay.>")
	env := onKubernetes(db, nats.URL, cluster, namespace, "OUTLANE_WORKER_ID=w1")
	p := start(t, env, "worker")
	addr := p.find(t, "serving probes and metrics")["addr"]
	ready := func() bool { return get(addr, "/readyz").code == http.StatusOK }
	require.Eventually(t, ready, ceiling, tick)
	delivered := func(n uint64) bool {
		info, err := stream.Info(t.Context())
		return err == nil && info.State.Msgs == n
	}
	insert := func() {
		pgtest.Exec(t, db, `INSERT INTO outbox_events (stream, topic, payload) VALUES ('PAY', 'pay.out', '{"team_id": "a"}')`)
	}
	insert()
	require.Eventually(t, func() bool { return delivered(1) }, ceiling, tick)

	look := func() (r report) {
		t.Helper()
		seen := outlane(t, env, "status", "-o", "json")
		require.Zero(t, seen.code, seen.err)
		require.NoError(t, json.Unmarshal([]byte(seen.out), &r))
		return r
	}
	r := look()
	require.Len(t, r.Members, 1)
	require.True(t, strings.HasPrefix(r.Members[0].ID, "w1-"), r.Members[0].ID)
	require.True(t, r.Members[0].Alive)
	require.Equal(t, 4, r.Members[0].Partitions)
	require.Empty(t, r.Stuck)

	cluster.Kill(controlplane.APIServer)
	require.Eventually(t, func() bool { return !ready() }, ceiling, tick)
	require.Contains(t, get(addr, "/readyz").body, "leases: ")
	insert()
	require.Eventually(t, func() bool { return delivered(2) }, ceiling, tick, "delivery goes on")
	r = look()
	require.Equal(t, 4, r.Partitions.Owned)
	require.Len(t, r.Stuck, 1)
	require.Equal(t, "leases", r.Stuck[0].What)
	require.Contains(t, r.Stuck[0].Detail, "read the members of "+namespace+"/outlane")

	cluster.Again(t, controlplane.APIServer)
	require.Eventually(t, ready, ceiling, tick)
	require.Empty(t, look().Stuck)
	require.Zero(t, p.stop(t, syscall.SIGTERM))
	require.Empty(t, look().Members)
}

func TestASecondPoolOnOneOutboxIsRefused(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Shared(t)
	namespace := cluster.Namespace(t)
	db, nats := pgtest.Migrated(t, 4), natstest.Start(t)
	first := start(t, onKubernetes(db, nats.URL, cluster, namespace), "worker", "--instance=orders")
	addr := first.find(t, "serving probes and metrics")["addr"]
	require.Eventually(t, func() bool { return get(addr, "/readyz").code == http.StatusOK }, ceiling, tick)

	second := outlane(t, onKubernetes(db, nats.URL, cluster, namespace), "worker", "--instance=orders-2")
	require.Equal(t, 1, second.code, second.err)
	for _, said := range []string{
		`work in the pool "kubernetes ` + namespace + `/orders-2": the outbox belongs to the pool "kubernetes ` + namespace + `/orders", which was seen`,
		"one outbox has one pool",
	} {
		require.Contains(t, second.err, said)
	}
	third := outlane(t, []string{"OUTLANE_DATABASE_URL=" + db, "OUTLANE_NATS_URL=" + nats.URL, "OUTLANE_HTTP_ADDR=127.0.0.1:0"}, "worker")
	require.Equal(t, 1, third.code, third.err)
	require.Contains(t, third.err, `work in the pool "postgres"`)

	same := start(t, onKubernetes(db, nats.URL, cluster, namespace), "worker", "--instance=orders")
	addr = same.find(t, "serving probes and metrics")["addr"]
	require.Eventually(t, func() bool { return get(addr, "/readyz").code == http.StatusOK }, ceiling, tick)
}

func TestWorkerWithoutAWayToKubernetes(t *testing.T) {
	t.Parallel()
	r := outlane(t, []string{"OUTLANE_DATABASE_URL=postgres://127.0.0.1:1/d", "OUTLANE_NATS_URL=nats://127.0.0.1:1", "OUTLANE_HTTP_ADDR=127.0.0.1:0"}, "worker",
		"--lease-backend=kubernetes")
	require.Equal(t, 2, r.code, r.err)
	require.Contains(t, r.complaint(t), "give lease.kubeconfig, or run it in a pod")
}

func TestMissingPermissionsAreInReadyz(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Shared(t)
	namespace := cluster.Namespace(t)
	db, nats := pgtest.Migrated(t, 4), natstest.Start(t)
	p := start(t, append(onKubernetes(db, nats.URL, cluster, namespace), "KUBECONFIG="+cluster.Kubeconfig(controlplane.Guest)), "worker")
	addr := p.find(t, "serving probes and metrics")["addr"]
	want := "not allowed to get, list, watch, create, update, delete leases.coordination.k8s.io in namespace " + namespace
	require.Eventually(t, func() bool { return strings.Contains(get(addr, "/readyz").body, want) }, ceiling, tick)
	require.Contains(t, p.find(t, "lease backend cannot be used")["error"], want)
}
