package lease

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Database is what the Postgres backend needs of package store; *store.Store has it. Renewals and versions are opaque texts, compared for
// equality.
type Database interface {
	// JoinPool makes a member's record, or renews it.
	JoinPool(ctx context.Context, id string, duration time.Duration, leaving bool, weights string) error

	// RenewMember renews a member's record, and says whether there is one.
	RenewMember(ctx context.Context, id string, duration time.Duration, leaving bool, weights string) (found bool, err error)

	// LeavePool removes a member's record, if there is one.
	LeavePool(ctx context.Context, id string) error

	// BuryMember removes a member's record if its renewal is the one given, and says whether the record is gone.
	BuryMember(ctx context.Context, id, renewal string) (gone bool, err error)

	// SwapLeases gives leases that still have the holders and versions given to the next holders, and creates those of version "". It
	// returns the partitions of those that took effect. Partitions are ascending.
	SwapLeases(ctx context.Context, partitions []int, holders, versions, next []string) (done []int, err error)

	// ReadPool reads all members, and all leases unless their digest is the one known, in one snapshot.
	ReadPool(ctx context.Context, known string, member func(id string, duration time.Duration, leaving bool, weights, renewal string),
		lease func(partition int, holder, version string)) (digest string, err error)

	// ListenPool calls wake when it has begun to listen, and after each change that is not a renewal. It returns when it cannot go on.
	ListenPool(ctx context.Context, wake func()) error
}

const (
	readTimeout   = 5 * time.Second       // of one look at the pool
	listenPause   = 10 * time.Second      // before an attempt to listen again
	closeLook     = 20 * time.Millisecond // between two looks while the pool changes and cannot be listened to
	closeLookTime = 2 * time.Second       // how long after a change that is
)

// Postgres is a Backend on two small tables. It reads them as often as it is asked to, which costs the database next to nothing while the
// pool is at rest, and at once when another member has changed something: by LISTEN where there can be a session, otherwise by reading more
// often for a while after each change.
type Postgres struct {
	db        Database
	wake      chan struct{}
	listening atomic.Bool
}

// NewPostgres returns a backend for one member. The connections of db should not be shared with work that may use all of them for long: a
// member that gets none cannot renew.
func NewPostgres(db Database) *Postgres {
	return &Postgres{db: db, wake: make(chan struct{}, 1)}
}

// look makes a Watch read without waiting.
func (p *Postgres) look() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Join implements Backend.
func (p *Postgres) Join(ctx context.Context, m Member) error {
	defer p.look()
	return p.db.JoinPool(ctx, m.ID, m.Duration, m.Leaving, m.Weights)
}

// Renew implements Backend.
func (p *Postgres) Renew(ctx context.Context, m Member) error {
	found, err := p.db.RenewMember(ctx, m.ID, m.Duration, m.Leaving, m.Weights)
	if err == nil && !found {
		return ErrGone
	}
	return err
}

// Leave implements Backend.
func (p *Postgres) Leave(ctx context.Context, id string) error {
	return p.db.LeavePool(ctx, id)
}

// Bury implements Backend.
func (p *Postgres) Bury(ctx context.Context, m Member) error {
	defer p.look()
	gone, err := p.db.BuryMember(ctx, m.ID, m.Renewal)
	if err == nil && !gone {
		return ErrRenewed
	}
	return err
}

// Swap implements Backend: one statement for all.
func (p *Postgres) Swap(ctx context.Context, swaps []Swap) ([]int, error) {
	if len(swaps) == 0 {
		return nil, nil
	}
	defer p.look()
	swaps = slices.SortedFunc(slices.Values(swaps), func(a, b Swap) int { return cmp.Compare(a.Lease.Partition, b.Lease.Partition) })
	partitions := make([]int, len(swaps))
	holders, versions, next := make([]string, len(swaps)), make([]string, len(swaps)), make([]string, len(swaps))
	for i, s := range swaps {
		partitions[i], holders[i], versions[i], next[i] = s.Lease.Partition, s.Lease.Holder, s.Lease.Version, s.To
	}
	return p.db.SwapLeases(ctx, partitions, holders, versions, next)
}

// Watch implements Backend. It returns the error of the first look that fails.
func (p *Postgres) Watch(ctx context.Context, every time.Duration, see func(Update)) error {
	ctx, cancel := context.WithCancel(ctx)
	var listener sync.WaitGroup
	defer listener.Wait()
	defer cancel()
	listener.Go(func() { p.listen(ctx) })

	var digest string
	var before map[string]Member
	var closely time.Time // until when to look closely
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		u, next, err := p.read(ctx, digest)
		if err != nil {
			return err
		}
		see(u)
		members := make(map[string]Member, len(u.Members))
		for _, m := range u.Members {
			members[m.ID] = m
		}
		if next != digest || !sameAssignees(before, members) {
			closely = time.Now().Add(closeLookTime)
		}
		digest, before = next, members

		pause := every
		if !p.listening.Load() && time.Now().Before(closely) {
			pause = min(every, closeLook)
		}
		timer.Reset(pause)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		case <-p.wake:
		}
	}
}

// read looks at the pool once.
func (p *Postgres) read(ctx context.Context, known string) (Update, string, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	u := Update{Members: []Member{}}
	leases := []Lease{}
	digest, err := p.db.ReadPool(ctx, known, func(id string, duration time.Duration, leaving bool, weights, renewal string) {
		u.Members = append(u.Members, Member{ID: id, Duration: duration, Leaving: leaving, Weights: weights, Renewal: renewal})
	}, func(partition int, holder, version string) {
		leases = append(leases, Lease{Partition: partition, Holder: holder, Version: version})
	})
	if err != nil {
		return Update{}, "", err
	}
	if digest != known {
		u.Leases = leases
	}
	return u, digest, nil
}

// listen keeps listening until ctx ends. Where there can be no session, it finds that out now and then.
func (p *Postgres) listen(ctx context.Context) {
	for ctx.Err() == nil {
		_ = p.db.ListenPool(ctx, func() { // the net below is the reading, whose error says what is wrong
			p.listening.Store(true)
			p.look()
		})
		p.listening.Store(false)
		pause := time.NewTimer(listenPause)
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
		pause.Stop()
	}
}
