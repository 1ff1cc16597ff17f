package stress_test

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordination "k8s.io/api/coordination/v1"

	"github.com/outlane/outlane/internal/chaos"
	"github.com/outlane/outlane/internal/controlplane"
	"github.com/outlane/outlane/internal/kubetest"
	"github.com/outlane/outlane/internal/pooltest"
)

// away is how long the API server is away under load: `make stress AWAY=3m`.
var away = flag.Duration("away", 8*time.Second, "how long the API server is away in TestAnAPIServerThatIsAwayUnderLoad")

func newKubernetesScene(t *testing.T, mode string, cluster *kubetest.Cluster) *scene {
	t.Helper()
	s := newScene(t, mode, partitions)
	s.OnKubernetes(cluster)
	return s
}

func TestAnAPIServerThatIsAwayUnderLoad(t *testing.T) {
	t.Parallel()
	cluster := kubetest.StartCluster(t)
	s := newKubernetesScene(t, "fast", cluster)
	s.backlog(aFew)
	s.produce()
	a, b := s.worker("a"), s.worker("b")
	s.SharedOnKubernetes("a", "b")
	claims := s.Count("SELECT sum(epoch)::int FROM outlane_partitions")

	cluster.Kill(controlplane.APIServer)
	for began := time.Now(); time.Since(began) < *away; {
		s.progress(20)
	}
	for _, p := range []*pooltest.Process{a, b} {
		p.Says("lease backend cannot be used")
	}
	cluster.Again(t, controlplane.APIServer)
	for _, p := range []*pooltest.Process{a, b} {
		p.Says("lease backend can be used again")
	}
	s.progress(20)
	s.SharedOnKubernetes("a", "b")
	require.Equal(t, claims, s.Count("SELECT sum(epoch)::int FROM outlane_partitions"), "nobody lost anything")

	// Who dies while it is away is replaced when it is back.
	cluster.Freeze(controlplane.Etcd)
	a.Kill()
	s.worker("c")
	s.progress(5)
	cluster.Thaw(controlplane.Etcd)
	s.SharedOnKubernetes("b", "c")
	s.finish()
	s.verdict()
}

func TestOrderOnKubernetes(t *testing.T) {
	t.Parallel()
	for mode := range modes {
		t.Run("workers that keep dying, "+mode, func(t *testing.T) {
			t.Parallel()
			s := newKubernetesScene(t, mode, kubetest.Shared(t))
			s.backlog(aFew)
			s.produce()
			s.keepDying(t)
			s.worker("last").Alone()
			s.finish()
			s.verdict()
		})
	}
	t.Run("workers that are paused again and again", func(t *testing.T) {
		t.Parallel()
		s := newKubernetesScene(t, "sync", kubetest.Shared(t))
		s.keepPausing(2, func() { s.SharedOnKubernetes("a", "b") })
	})
	t.Run("Leases edited by hand", func(t *testing.T) {
		t.Parallel()
		s := newKubernetesScene(t, "fast", kubetest.Shared(t))
		members := []string{s.Start(sameRoutes).Member(), s.Start(sameRoutes).Member()}
		s.backlog(aFew)
		s.produce()
		r := rand.New(rand.NewPCG(1, 1))
		for n := range 20 {
			s.editLease(n, r, members[r.IntN(2)])
			s.progress(1 + r.IntN(5))
		}
		s.finish()
		s.verdict()
	})
}

// editLease does to some Lease what a person may do.
func (s *scene) editLease(n int, r *rand.Rand, holder string) {
	s.T.Helper()
	all := s.Cluster.Leases(s.T, s.Namespace)
	if len(all) == 0 {
		return
	}
	name := all[r.IntN(len(all))].Name
	if n%5 == 4 {
		s.Cluster.DeleteLease(s.T, s.Namespace, name)
		return
	}
	s.Cluster.EditLease(s.T, s.Namespace, name, func(l *coordination.Lease) {
		switch n % 5 {
		case 0:
			l.Spec.HolderIdentity = &holder
		case 1:
			l.Spec.HolderIdentity = nil
		case 2:
			l.Labels = nil
		case 3:
			l.Labels, l.Annotations, l.Spec = nil, nil, coordination.LeaseSpec{}
		}
	})
}

// TestAShortChaosRunOnKubernetes is the quick form of `make chaos LEASES=kubernetes`.
func TestAShortChaosRunOnKubernetes(t *testing.T) {
	t.Parallel()
	opts := chaos.Options{Program: program, Out: logged{t}, Duration: 20 * time.Second, Seed: 30, Rate: 200, Every: 900 * time.Millisecond, Leases: chaos.LeasesKubernetes}
	plan := chaos.PlanOf(opts).String()
	for _, kind := range []string{"API server", "Leases edited", "worker killed"} {
		require.Contains(t, plan, kind)
	}
	require.NoError(t, chaos.Run(t.Context(), opts))
}
