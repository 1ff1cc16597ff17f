package lease_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/kubetest"
	"github.com/outlane/outlane/lease"
	"github.com/outlane/outlane/lease/leasetest"
)

// tooLong is a duration that no test waits for.
const tooLong = 30 * time.Minute

func TestAContainerThatStartsAgainHasItsPartitionsAtOnce(t *testing.T) {
	t.Parallel()
	pool := newKubernetesPool(t, kubetest.Shared(t))
	inPod := *pool
	inPod.pod, inPod.podUID = "pod-0", pool.cluster.Pod(t, pool.namespace, "pod-0")
	first, other := leasetest.Start(t, &inPod, "pod-0", tooLong), leasetest.Start(t, pool, "other", tooLong)
	settle(t, pool, first, other)
	had := first.Has()
	first.Kill()
	second := leasetest.Start(t, &inPod, "pod-0", tooLong)
	settle(t, pool, second, other)
	require.Equal(t, had, second.Has())
	gained, lost := other.Counts()
	require.Zero(t, lost)
	require.LessOrEqual(t, gained, leasetest.Partitions, "nothing went to the other in between")

	// The first was not dead, as it turns out. The second has its record by now, and goes on when it stops.
	first.Way.Set(leasetest.Sound)
	require.Eventually(t, func() bool { return len(first.Has()) == 0 }, ceiling, 10*time.Millisecond)
	require.NoError(t, pool.Backend(t).Leave(t.Context(), "nobody"))
	require.NoError(t, inPod.backend(t).Leave(t.Context(), first.ID()))
	settle(t, pool, second, other)
}

func TestADeletedPodIsADeadMember(t *testing.T) {
	t.Parallel()
	pool := newKubernetesPool(t, kubetest.Shared(t))
	inPod := *pool
	inPod.pod, inPod.podUID = "pod-0", pool.cluster.Pod(t, pool.namespace, "pod-0")
	victim, other := leasetest.Start(t, &inPod, "pod-0", tooLong), leasetest.Start(t, pool, "other", tooLong)
	settle(t, pool, victim, other)
	victim.Kill()
	pool.cluster.Delete(t, "/api/v1/namespaces/"+pool.namespace+"/pods/pod-0")
	settle(t, pool, other)
}

func TestHalfAPodIsRefused(t *testing.T) {
	t.Parallel()
	client := kubetest.Shared(t).Client(t, "admin")
	for _, cfg := range []lease.KubernetesConfig{
		{Namespace: "n", Instance: "i"},
		{Client: client, Instance: "i"},
		{Client: client, Namespace: "n"},
		{Client: client, Namespace: "n", Instance: "i", Pod: "p"},
		{Client: client, Namespace: "n", Instance: "i", PodUID: "u"},
	} {
		_, err := lease.NewKubernetes(cfg)
		require.Error(t, err)
	}
}
