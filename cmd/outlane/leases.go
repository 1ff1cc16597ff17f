package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/outlane/outlane/lease"
	"github.com/outlane/outlane/store"
)

// backendKubernetes is the lease.backend that keeps leases outside the database.
const backendKubernetes = "kubernetes"

// kubernetes makes the backend of the configuration, and says where its Leases are: a namespace and an instance.
func (a *app) kubernetes() (backend *lease.Kubernetes, where string, err error) {
	l := a.cfg.Lease
	client, namespace, err := lease.LoadKubernetes(l.Kubeconfig)
	if err != nil {
		return nil, "", usageError{fmt.Errorf("lease.backend: %w; give lease.kubeconfig, or run it in a pod", err)}
	}
	client.UserAgent = "outlane/" + version
	klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // what the client library says, its errors say too
	if l.Namespace != "" {
		namespace = l.Namespace
	}
	backend, err = lease.NewKubernetes(lease.KubernetesConfig{
		Client: client, Namespace: namespace, Instance: l.Instance, Pod: l.PodName, PodUID: l.PodUID,
	})
	if err != nil {
		return nil, "", usageError{err}
	}
	return backend, namespace + "/" + l.Instance, nil
}

// leaseBackend makes the backend of the configuration for a worker. db is the database, for renewals alone. The name of the pool is what tells
// it from others that use the same database.
func (a *app) leaseBackend(db *store.Store) (backend lease.Backend, pool string, closing func(), err error) {
	if a.cfg.Lease.Backend != backendKubernetes {
		return lease.NewPostgres(db), "postgres", func() {}, nil
	}
	k, where, err := a.kubernetes()
	if err != nil {
		return nil, "", nil, err
	}
	return k, "kubernetes " + where, k.Close, nil
}

// poolLapse is how long a pool has the outbox after the last of its workers has said so.
const poolLapse = time.Minute

// poolGuard keeps a worker from joining its pool before the pool has the outbox, and ends it if another pool has it.
type poolGuard struct {
	lease.Backend
	db     *store.Store
	pool   string
	log    *slog.Logger
	refuse context.CancelCauseFunc
	has    atomic.Bool
}

// errOtherPool is why a worker is refused.
var errOtherPool = errors.New("one outbox has one pool: stop the other one and wait a minute, or give this one a schema of its own")

// Join implements lease.Backend.
func (g *poolGuard) Join(ctx context.Context, m lease.Member) error {
	if !g.has.Load() {
		if err := g.claim(ctx); err != nil {
			return err
		}
		g.has.Store(true)
	}
	return g.Backend.Join(ctx, m)
}

func (g *poolGuard) claim(ctx context.Context) error {
	err := g.db.ClaimPool(ctx, g.pool, poolLapse)
	var other *store.PoolError
	if errors.As(err, &other) {
		g.has.Store(false)
		g.refuse(fmt.Errorf("work in the pool %q: %w; %w", g.pool, err, errOtherPool))
	}
	return err
}

// keep keeps the claim fresh until ctx ends.
func (g *poolGuard) keep(ctx context.Context) {
	tick := time.NewTicker(poolLapse / 4)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !g.has.Load() {
			continue
		}
		if err := g.claim(ctx); err != nil && ctx.Err() == nil {
			g.log.Warn("the pool's claim of the outbox was not renewed", "pool", g.pool, "error", err.Error())
		}
	}
}

// readMembers bounds one look at the members.
const readMembers = 5 * time.Second

// members says how to find out who is in the pool, nil if the database knows it.
func (a *app) members() (source memberSource, closing func(), err error) {
	if a.cfg.Lease.Backend != backendKubernetes {
		return nil, func() {}, nil
	}
	k, where, err := a.kubernetes()
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context) ([]store.MemberInfo, error) {
		ctx, cancel := context.WithTimeout(ctx, readMembers)
		defer cancel()
		records, err := k.Members(ctx)
		if err != nil {
			return nil, fmt.Errorf("read the members of %s: %w", where, err)
		}
		var members []store.MemberInfo
		for _, r := range records {
			members = append(members, store.MemberInfo{
				ID: r.ID, JoinedAt: r.JoinedAt, Duration: r.Duration, Silent: max(time.Since(r.RenewedAt), 0), Leaving: r.Leaving,
			})
		}
		return members, nil
	}, k.Close, nil
}
