package pooltest

import (
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/controlplane"
	"github.com/outlane/outlane/internal/kubetest"
	"github.com/outlane/outlane/lease"
	"github.com/outlane/outlane/store"
)

// OnKubernetes has the workers that are started from now on keep their leases in a namespace of their own.
func (e *Env) OnKubernetes(c *kubetest.Cluster) {
	e.T.Helper()
	e.Cluster, e.Namespace = c, c.Namespace(e.T)
}

// leases is a backend for a worker in this process.
func (e *Env) leases(db *store.Store) lease.Backend {
	e.T.Helper()
	if e.Cluster == nil {
		return lease.NewPostgres(db)
	}
	k, err := lease.NewKubernetes(lease.KubernetesConfig{Client: e.Cluster.Client(e.T, controlplane.Admin), Namespace: e.Namespace, Instance: "outlane"})
	require.NoError(e.T, err)
	e.T.Cleanup(k.Close)
	return k
}

// onKubernetes are the settings of a process that say where leases are, if not in the database.
func (e *Env) onKubernetes() []string {
	if e.Cluster == nil {
		return nil
	}
	return []string{
		"OUTLANE_LEASE_BACKEND=kubernetes", "OUTLANE_LEASE_NAMESPACE=" + e.Namespace, "OUTLANE_LEASE_KUBECONFIG=" + e.Cluster.Kubeconfig(controlplane.Admin),
	}
}

// SharedOnKubernetes waits until the workers, and nobody else, have the Leases and the claims of all partitions, evenly.
func (e *Env) SharedOnKubernetes(workers ...string) {
	e.T.Helper()
	partitions := e.Count("SELECT count(*) FROM outlane_partitions")
	require.True(e.T, WaitFor(func() bool { return e.sharedBy(partitions, workers) }), "by %v\n%s", workers, e.Log.Tail())
}

func (e *Env) sharedBy(partitions int, workers []string) bool {
	members, held := 0, map[string]int{}
	for _, l := range e.Cluster.Leases(e.T, e.Namespace) {
		switch {
		case strings.Contains(l.Name, ".member."):
			members++
		case l.Spec.HolderIdentity != nil:
			held[*l.Spec.HolderIdentity]++
		}
	}
	if members != len(workers) || len(held) != len(workers) {
		return false
	}
	for holder, n := range held {
		if n != partitions/len(workers) || e.Count("SELECT count(*) FROM outlane_partitions WHERE owner = $1", holder) != n {
			return false
		}
	}
	for _, id := range workers {
		if e.Count("SELECT count(*) FROM outlane_partitions WHERE owner LIKE $1 || '-%'", id) != partitions/len(workers) {
			return false
		}
	}
	return true
}
