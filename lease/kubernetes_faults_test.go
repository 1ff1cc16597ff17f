package lease_test

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordination "k8s.io/api/coordination/v1"

	"github.com/outlane/outlane/internal/controlplane"
	"github.com/outlane/outlane/internal/kubetest"
	"github.com/outlane/outlane/lease"
	"github.com/outlane/outlane/lease/leasetest"
)

// startWith starts a member on a backend of its own.
func startWith(t *testing.T, b lease.Backend, name string, d time.Duration) *leasetest.Worker {
	t.Helper()
	return leasetest.Start(t, fixedBackend{b}, name, d)
}

// fixedBackend is a pool that has the one backend.
type fixedBackend struct{ b lease.Backend }

func (f fixedBackend) Backend(testing.TB) lease.Backend              { return f.b }
func (f fixedBackend) Members(testing.TB) []lease.Member             { return nil }
func (f fixedBackend) Leases(testing.TB) []lease.Lease               { return nil }
func (f fixedBackend) SetHolder(testing.TB, int, string)             {}
func (f fixedBackend) Disturb(testing.TB, int)                       {}
func (f fixedBackend) DeleteLease(testing.TB, int)                   {}
func (f fixedBackend) SetDuration(testing.TB, string, time.Duration) {}

func TestAnAPIServerThatIsAwayForLongCostsNoPartition(t *testing.T) {
	t.Parallel()
	cluster := kubetest.StartCluster(t)
	pool := newKubernetesPool(t, cluster)
	workers := []*leasetest.Worker{
		leasetest.Start(t, pool, "a", duration), leasetest.Start(t, pool, "b", duration), leasetest.Start(t, pool, "c", duration),
	}
	settle(t, pool, workers...)
	back := func() {
		t.Helper()
		for _, w := range workers {
			require.Eventually(t, func() bool { return w.Status().Err == nil }, ceiling, 10*time.Millisecond)
			_, lost := w.Counts()
			require.Zero(t, lost)
		}
	}
	cluster.Kill(controlplane.APIServer)
	outlast(t, workers, "an API server that crashed")
	cluster.Again(t, controlplane.APIServer)
	back()
	cluster.Freeze(controlplane.APIServer)
	outlast(t, workers, "an API server that is silent")
	cluster.Thaw(controlplane.APIServer)
	back()
	cluster.Freeze(controlplane.Etcd)
	outlast(t, workers, "an API server that can neither read nor write, with its watches open")
	cluster.Thaw(controlplane.Etcd)
	back()
	settle(t, pool, workers...)

	cluster.Freeze(controlplane.APIServer)
	stopped := make(chan error, 1)
	go func() { stopped <- workers[0].Stop() }()
	require.Error(t, <-stopped, "it does not hang with the server")
	require.Empty(t, workers[0].Has())
	cluster.Thaw(controlplane.APIServer)
	settle(t, pool, workers[1:]...)
}

// breaker is a way to the API server on which watches can be ended, and the next one made to ask for what is long gone.
type breaker struct {
	http.RoundTripper

	mu      sync.Mutex
	watches []io.Closer
	tooOld  bool
	expired int // how often the API server said so
}

func (b *breaker) RoundTrip(r *http.Request) (*http.Response, error) {
	query := r.URL.Query()
	if query.Get("watch") == "" {
		return b.RoundTripper.RoundTrip(r)
	}
	b.mu.Lock()
	tooOld := b.tooOld
	b.tooOld = false
	b.mu.Unlock()
	if tooOld {
		r = r.Clone(r.Context())
		query.Set("resourceVersion", "1")
		r.URL.RawQuery = query.Encode()
	}
	response, err := b.RoundTripper.RoundTrip(r)
	b.mu.Lock()
	defer b.mu.Unlock()
	if tooOld {
		b.expired++
	}
	if err == nil {
		b.watches = append(b.watches, response.Body)
	}
	return response, err
}

func (b *breaker) endWatches(tooOld bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tooOld = tooOld
	for _, w := range b.watches {
		_ = w.Close() // it may have ended
	}
	b.watches = nil
}

func TestWatchesThatEndAreRoutine(t *testing.T) {
	t.Parallel()
	pool := newKubernetesPool(t, kubetest.Shared(t))
	way := &breaker{}
	client := pool.cluster.Client(t, controlplane.Admin)
	client.Wrap(func(inner http.RoundTripper) http.RoundTripper {
		way.RoundTripper = inner
		return way
	})
	b, err := lease.NewKubernetes(lease.KubernetesConfig{Client: client, Namespace: pool.namespace, Instance: pool.instance})
	require.NoError(t, err)
	t.Cleanup(b.Close)
	watcher := startWith(t, b, "watcher", duration)
	other := leasetest.Start(t, pool, "other", duration)
	settle(t, pool, watcher, other)
	for _, tooOld := range []bool{false, true} {
		seenAt := watcher.Status().SeenAt
		require.Eventually(t, func() bool { return watcher.Status().SeenAt.Sub(seenAt) > 2*time.Second }, ceiling, 10*time.Millisecond, "a watch that lasts")
		way.endWatches(tooOld)
		pool.SetHolder(t, 3, "nobody")
		require.Eventually(t, func() bool { _, a := watcher.Counts(); _, b := other.Counts(); return a+b > 0 }, ceiling, 10*time.Millisecond)
		settle(t, pool, watcher, other)
		require.NoError(t, watcher.Status().Err)
	}
	way.mu.Lock()
	defer way.mu.Unlock()
	require.Positive(t, way.expired)
}

func TestMissingPermissionsAreNamed(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Shared(t)
	pool := newKubernetesPool(t, cluster)
	pool.user = controlplane.Guest
	w := leasetest.Start(t, pool, "a", duration)
	var forbidden *lease.ForbiddenError
	require.Eventually(t, func() bool { return errors.As(w.Status().Err, &forbidden) }, ceiling, 10*time.Millisecond)
	require.Equal(t, pool.namespace, forbidden.Namespace)
	require.Equal(t, []string{"get", "list", "watch", "create", "update", "delete"}, forbidden.Verbs)
	require.ErrorContains(t, forbidden, "get, list, watch, create, update, delete leases.coordination.k8s.io in namespace "+pool.namespace)

	grant(t, pool, "reads", "get", "list", "watch")
	require.Eventually(t, func() bool {
		err := w.Status().Err
		return errors.As(err, &forbidden) && len(forbidden.Verbs) == 3
	}, ceiling, 10*time.Millisecond)
	require.Equal(t, []string{"create", "update", "delete"}, forbidden.Verbs)
	require.Empty(t, pool.Members(t))

	grant(t, pool, "writes", "create", "update", "delete")
	settle(t, pool, w)
	require.NoError(t, w.Status().Err)
}

// grant gives the guest verbs on Leases in the pool's namespace.
func grant(t *testing.T, pool *kubernetesPool, name string, verbs ...string) {
	t.Helper()
	rbac := "/apis/rbac.authorization.k8s.io/v1/namespaces/" + pool.namespace
	pool.cluster.Create(t, rbac+"/roles", map[string]any{
		"metadata": map[string]any{"name": name},
		"rules":    []any{map[string]any{"apiGroups": []string{coordination.GroupName}, "resources": []string{"leases"}, "verbs": verbs}},
	})
	pool.cluster.Create(t, rbac+"/rolebindings", map[string]any{
		"metadata": map[string]any{"name": name},
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
		"subjects": []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": controlplane.Guest}},
	})
}

// A pool whose other members renew too seldom to prove anything finds a death by asking.
func TestAShortLivedMemberAmongPatientOnesIsFoundDead(t *testing.T) {
	t.Parallel()
	pool := newKubernetesPool(t, kubetest.Shared(t))
	other := leasetest.Start(t, pool, "other", tooLong)
	settle(t, pool, other)
	for range 2 {
		victim := leasetest.Start(t, pool, "victim", duration)
		settle(t, pool, other, victim)
		victim.Kill()
		settle(t, pool, other)
	}
}
