package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	coordination "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

const (
	// swapsAtOnce and swapRate bound what one member asks of the API server while partitions move: at most so many writes at a time, and
	// so many a second, as a burst too. Renewals are not counted: they must not wait behind anything.
	swapsAtOnce = 4
	swapRate    = 400

	// joinTries is how often a record that changes meanwhile is written.
	joinTries = 5
)

// KubernetesConfig is what the Kubernetes backend needs.
type KubernetesConfig struct {
	// Client is how to reach the API server; LoadKubernetes makes one. It is not changed.
	Client *rest.Config

	// Namespace is where the Leases are. Instance is the name of the pool in it, such as that of a Helm release: any text that is not empty.
	Namespace, Instance string

	// Pod and PodUID are the pod that this process runs in, or empty. The pod then owns the member's Lease, which goes with it. A process
	// that is started in a pod replaces the one before it at once, so that each worker of a pod needs a name of its own (see NewID).
	Pod, PodUID string
}

// Kubernetes is a Backend on Leases of coordination.k8s.io/v1. Each member has one, which it renews; each partition has one, which is
// written when its holder changes and at no other time. One list and one watch show them all.
//
// A member is removed on condition that its Lease still is the very one that was seen, and a partition's Lease is changed on the same
// condition, so that a view that is late leads to a refused write and no more.
//
// It needs the verbs get, list, watch, create, update and delete on leases in the one namespace.
type Kubernetes struct {
	client *kubernetesClient
	names  kubernetesNames
	pod    meta.OwnerReference // UID "" if there is none

	swaps *rate.Limiter

	asking   sync.Mutex
	allowed  bool         // what is needed is granted, as far as can be known; guarded by asking
	answered atomic.Int64 // when the API server last took a write, by since
	began    time.Time

	mu      sync.Mutex
	own     map[string]*coordination.Lease // members' Leases by name, as last written here: one, in a pool
	awaited awaited
	covered map[int]time.Time // partitions whose Lease was found to exist though none was seen, and when
}

// coveredAfter is how long a Lease that exists may stay unseen before it is looked at: who lost a race sees the winner's much sooner.
const coveredAfter = 500 * time.Millisecond

// awaited is a write of our own that the watch has not shown yet.
type awaited struct {
	name, version string
	since         time.Time
}

// NewKubernetes returns a backend for one member. It needs no reachable API server.
func NewKubernetes(cfg KubernetesConfig) (*Kubernetes, error) {
	switch {
	case cfg.Client == nil:
		return nil, errors.New("lease: no way to a Kubernetes API server given")
	case cfg.Namespace == "" || cfg.Instance == "":
		return nil, errors.New("lease: namespace or instance is missing")
	case (cfg.Pod == "") != (cfg.PodUID == ""):
		return nil, errors.New("lease: of a pod, name and UID must both be given")
	}
	client, err := newKubernetesClient(cfg.Client, cfg.Namespace)
	if err != nil {
		return nil, err
	}
	k := &Kubernetes{
		client: client,
		names:  kubernetesNames{instance: legalInstance(cfg.Instance), podUID: cfg.PodUID},
		swaps:  rate.NewLimiter(swapRate, swapRate),
		began:  time.Now(),
		own:    map[string]*coordination.Lease{}, covered: map[int]time.Time{},
	}
	if cfg.PodUID != "" {
		k.pod = podReference(cfg.Pod, cfg.PodUID)
	}
	return k, nil
}

// Close closes the connections to the API server.
func (k *Kubernetes) Close() { k.client.close() }

// wrote notes a write that took effect.
func (k *Kubernetes) wrote() { k.answered.Store(int64(time.Since(k.began))) }

// await notes a write that the watch must show.
func (k *Kubernetes) await(l *coordination.Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.own[l.Name] = l
	k.awaited = awaited{name: l.Name, version: l.ResourceVersion, since: time.Now()}
}

// failed gives up connections on which an answer did not come in time: they may be half open, and whatever is tried next would use them.
func (k *Kubernetes) failed(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		k.client.reconnect()
	}
	return err
}

// permitted fails while a permission is missing. What was granted once is not asked for again.
func (k *Kubernetes) permitted(ctx context.Context) error {
	k.asking.Lock()
	defer k.asking.Unlock()
	if k.allowed {
		return nil
	}
	if err := k.client.permitted(ctx); err != nil {
		return k.failed(ctx, err)
	}
	k.allowed = true
	return nil
}

// Join implements Backend. It fails while a permission that will be needed is missing.
func (k *Kubernetes) Join(ctx context.Context, m Member) error {
	if err := k.permitted(ctx); err != nil {
		return err
	}
	record := k.memberLease(m)
	for range joinTries {
		l, err := k.client.create(ctx, record)
		if apierrors.IsAlreadyExists(err) {
			l, err = k.replace(ctx, record)
		}
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			continue // it was changed or removed in between
		}
		if err != nil {
			return k.failed(ctx, err)
		}
		k.wrote()
		k.await(l)
		return nil
	}
	return fmt.Errorf("join the pool: lease %s changes all the time", record.Name)
}

// replace writes a record over the one of that name, whatever it says.
func (k *Kubernetes) replace(ctx context.Context, record *coordination.Lease) (*coordination.Lease, error) {
	there, err := k.client.get(ctx, record.Name)
	if err != nil {
		return nil, err
	}
	return k.overwrite(ctx, record, there)
}

// overwrite writes a record over one, if that still is as it was seen.
func (k *Kubernetes) overwrite(ctx context.Context, record, seen *coordination.Lease) (*coordination.Lease, error) {
	next := record.DeepCopy()
	next.UID, next.ResourceVersion = seen.UID, seen.ResourceVersion
	return k.client.update(ctx, next)
}

// Renew implements Backend.
func (k *Kubernetes) Renew(ctx context.Context, m Member) error {
	record := k.memberLease(m)
	k.mu.Lock()
	known := k.own[record.Name]
	k.mu.Unlock()
	for range joinTries {
		if known == nil {
			there, err := k.client.get(ctx, record.Name)
			if apierrors.IsNotFound(err) {
				return ErrGone
			}
			if err != nil {
				return k.failed(ctx, err)
			}
			if there.DeletionTimestamp != nil || k.names.successor(there, m.ID) {
				return ErrGone
			}
			known = there
		}
		l, err := k.overwrite(ctx, record, known)
		known = nil
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			continue // it was edited, or is gone
		}
		if err != nil {
			return k.failed(ctx, err)
		}
		k.wrote()
		k.await(l)
		return nil
	}
	return fmt.Errorf("renew a member: lease %s changes all the time", record.Name)
}

// Leave implements Backend.
func (k *Kubernetes) Leave(ctx context.Context, id string) error {
	name := k.names.member(id)
	if k.pod.UID != "" {
		// The record may be our successor's by now.
		there, err := k.client.get(ctx, name)
		if apierrors.IsNotFound(err) || err == nil && k.names.successor(there, id) {
			return nil
		}
		if err != nil {
			return k.failed(ctx, err)
		}
	}
	if err := k.client.delete(ctx, name, nil); err != nil && !apierrors.IsNotFound(err) {
		return k.failed(ctx, err)
	}
	return nil
}

// Bury implements Backend.
func (k *Kubernetes) Bury(ctx context.Context, m Member) error {
	seen, ok := parseRenewal(m.Renewal)
	if !ok {
		return fmt.Errorf("remove a dead member: %q is not what was seen of one", m.Renewal)
	}
	err := k.client.delete(ctx, seen.name, &meta.Preconditions{UID: &seen.uid, ResourceVersion: &seen.version})
	switch {
	case err == nil, apierrors.IsNotFound(err):
		return nil
	case apierrors.IsConflict(err):
		return k.changed(ctx, seen)
	}
	return k.failed(ctx, err)
}

// changed says what became of a record that was not removed because it is no longer as it was seen: renewed, or another one.
func (k *Kubernetes) changed(ctx context.Context, seen renewal) error {
	there, err := k.client.get(ctx, seen.name)
	if apierrors.IsNotFound(err) || err == nil && there.UID != seen.uid {
		return nil
	}
	if err != nil {
		return k.failed(ctx, err)
	}
	return ErrRenewed
}

// Swap implements Backend: one write for each, some at a time.
func (k *Kubernetes) Swap(ctx context.Context, swaps []Swap) ([]int, error) {
	var mu sync.Mutex
	var done []int
	writes, each := errgroup.WithContext(ctx)
	writes.SetLimit(swapsAtOnce)
	for _, s := range swaps {
		writes.Go(func() error {
			if err := k.swaps.Wait(each); err != nil {
				return err
			}
			ok, err := k.swap(each, s)
			if err != nil {
				return err
			}
			if ok {
				k.wrote()
				mu.Lock()
				defer mu.Unlock()
				done = append(done, s.Lease.Partition)
			}
			return nil
		})
	}
	if err := writes.Wait(); err != nil {
		return done, fmt.Errorf("change leases: %w", k.failed(ctx, err))
	}
	return done, nil
}

// swap writes one lease, and says whether that took effect.
func (k *Kubernetes) swap(ctx context.Context, s Swap) (bool, error) {
	if s.Lease.Version == "" {
		_, err := k.client.create(ctx, k.partitionLease(s.Lease.Partition, s.To, version{}))
		if apierrors.IsAlreadyExists(err) {
			return k.uncover(ctx, s)
		}
		return err == nil, err
	}
	seen, ok := parseVersion(s.Lease.Version)
	if !ok {
		return false, fmt.Errorf("%q is no version of a lease", s.Lease.Version)
	}
	_, err := k.client.update(ctx, k.partitionLease(s.Lease.Partition, s.To, seen))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// uncover takes over a partition's Lease that exists and is seen by no member, because it has lost its labels or was made by somebody else.
func (k *Kubernetes) uncover(ctx context.Context, s Swap) (bool, error) {
	k.mu.Lock()
	since, before := k.covered[s.Lease.Partition]
	if !before {
		k.covered[s.Lease.Partition] = time.Now()
	}
	k.mu.Unlock()
	if !before || time.Since(since) < coveredAfter {
		return false, nil
	}
	k.mu.Lock()
	delete(k.covered, s.Lease.Partition)
	k.mu.Unlock()
	there, err := k.client.get(ctx, k.names.partition(s.Lease.Partition))
	if apierrors.IsNotFound(err) || err == nil && k.names.ours(there) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	_, err = k.client.update(ctx, k.partitionLease(s.Lease.Partition, s.To, versionOf(there)))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}
