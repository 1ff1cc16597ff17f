package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/controlplane"
)

// away is how long the API server is gone: far longer than any Lease lasts.
const away = 3 * time.Minute

// TestD stops the API server. Nobody can take a partition meanwhile, so that everything flows on as if nothing were.
func TestD(t *testing.T) {
	s := begin(t, "d", "API server away for three minutes")
	r := s.newRelease("outlane")
	r.set("replicas", 3)
	r.apply()
	r.waitForPool(3)
	flow := s.site.Steady(s.ctx, 500)
	s.requireFlow()
	before, err := r.leases("partition")
	require.NoError(t, err)

	began := time.Now()
	suite.cluster.Plane().Kill(controlplane.APIServer)
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for time.Since(began) < away {
		<-look.C
		s.requireFlow()
	}
	s.around("API server away for "+round(time.Since(began)).String(), began)

	s.startAPIServer(r)
	for _, pod := range r.pods() {
		require.Zero(t, restarts(pod), "%s was started again", pod.Name)
	}
	after, err := r.leases("partition")
	require.NoError(t, err)
	require.Equal(t, before, after, "partitions have moved")

	began = time.Now() // and Leases work as before
	s.kubectl("delete", "pod", r.pods()[0].Name)
	r.waitForPool(3)
	s.around("a pod deleted after that", began)

	began = time.Now() // and nobody replaces one that dies meanwhile before the API server is back
	victim := r.pods()[0]
	suite.cluster.Plane().Kill(controlplane.APIServer)
	require.NoError(t, suite.cluster.KillContainer(victim.Status.ContainerStatuses[0].ContainerID))
	s.startAPIServer(r)
	s.around("a worker killed while the API server is away", began)
	s.stopAndCheck(flow)
}

// startAPIServer returns when the API server is back, and the pool is whole.
func (s *scenario) startAPIServer(r *release) {
	s.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(s.ctx, ceiling)
	defer cancel()
	require.NoError(s, suite.cluster.Plane().Start(ctx, controlplane.APIServer))
	ready := time.Since(began)
	r.waitForPool(3)
	s.around(fmt.Sprintf("API server back after %s, pool whole after %s", round(ready), round(time.Since(began))), began)
}
