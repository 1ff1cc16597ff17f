package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outlane/outlane/partition"
)

// Manager is one member of a pool.
type Manager struct {
	cfg     Config
	log     *slog.Logger
	started atomic.Bool
	leaving atomic.Bool
	turned  atomic.Pointer[time.Time] // when the loop last went round

	news    chan struct{} // the view has changed, or was confirmed
	drained chan int      // a Release has returned
	renew   chan struct{} // renew, or join, without waiting

	announced chan struct{} // closed once the record says that this member leaves, or that could not be written

	// Owned by the goroutine of Run.
	slots    []slot
	goal     []string // the assignment of view.revision
	goalOf   goalKey
	quiet    bool // decide has found nothing to do, as of quietOf
	quietOf  goalKey
	relief   relief
	releases sync.WaitGroup

	mu     sync.Mutex
	view   view
	judge  *judge
	meter  *meter // nil without weights
	status Status
	faults faults
}

// view is the state of the pool as last seen. What it points to is never changed, only replaced.
type view struct {
	at       time.Time // of the last update
	moved    time.Time // when a lease or who may hold one was last seen to have changed
	revision uint64    // goes up when the goal may have changed
	members  map[string]Member
	leases   []Lease // by partition; nil until the first update
}

// goalKey is what the assignment depends on.
type goalKey struct {
	revision uint64
	leaving  bool
}

// New returns a manager that does nothing until Run is called. It needs no reachable backend.
func New(cfg Config) (*Manager, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	m := &Manager{
		cfg:     cfg,
		log:     cfg.Logger.With("member", cfg.ID),
		news:    make(chan struct{}, 1),
		drained: make(chan int, cfg.Partitions), // at most one Release of a partition runs, so that sending never blocks
		renew:   make(chan struct{}, 1),

		announced: make(chan struct{}),
		slots:     make([]slot, cfg.Partitions),
		judge:     newJudge(cfg.ID, cfg.Duration, cfg.every()),
		status:    Status{ID: cfg.ID},
		faults:    faults{},
	}
	if cfg.Events != nil {
		m.meter = newMeter(cfg.Partitions, cfg.Duration, cfg.Events)
	}
	m.turn()
	return m, nil
}

// ID returns the identity of this member.
func (m *Manager) ID() string { return m.cfg.ID }

// Run joins the pool and takes part in it until ctx ends. Then it takes nothing more, releases all that it holds, hands it straight to the
// other members, leaves the pool and returns; that takes no longer than the drain timeout plus some seconds, and nobody needs to wait for
// it if the backend is unreachable. It returns an error if it could not hand over or leave, in which case others take over as if it had
// died. Run must be called once.
func (m *Manager) Run(ctx context.Context) error {
	if m.started.Swap(true) {
		return errors.New("lease: Run was called before")
	}
	// The background loops outlive ctx: handing over needs them.
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var background sync.WaitGroup
	background.Go(func() { m.keepRenewing(work) })
	background.Go(func() { m.keepWatching(work) })

	m.loop(ctx, work)
	err := m.handOver(work)

	stop()
	m.releases.Wait()
	background.Wait()

	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.cfg.callTimeout())
	defer cancel()
	if leaveErr := m.cfg.Backend.Leave(last, m.cfg.ID); leaveErr != nil {
		err = errors.Join(err, fmt.Errorf("leave the pool: %w", leaveErr))
	}
	return err
}

// loop takes part in the pool until ctx ends.
func (m *Manager) loop(ctx, work context.Context) {
	tick := time.NewTicker(m.cfg.Duration / 4) // for turn, when no news comes
	defer tick.Stop()
	for ctx.Err() == nil {
		m.step(work)
		select {
		case <-ctx.Done():
		case <-m.news:
		case p := <-m.drained:
			m.released(p)
		case <-tick.C:
		}
		m.turn()
	}
}

// handOver gives away everything that is held, and what others still hand to this member before they have seen that it leaves.
func (m *Manager) handOver(work context.Context) error {
	m.leaving.Store(true)
	m.kick(m.renew)
	// A Release started before has its own, earlier timeout.
	deadline := time.Now().Add(m.cfg.DrainTimeout + m.cfg.callTimeout())
	stay := time.Now().Add(2 * m.cfg.every())
	announced := m.announced
	tick := time.NewTicker(m.cfg.every())
	defer tick.Stop()
	for {
		m.step(work)
		held, draining := m.held()
		now := time.Now()
		if held == 0 && (!now.Before(stay) || m.Status().Err != nil) {
			return nil
		}
		// What is drained needs one write only, so that there is no point in waiting for an unreachable backend any longer than for a slow one.
		if held > 0 && !draining {
			deadline = earlier(deadline, now.Add(m.cfg.callTimeout()))
		}
		if !now.Before(deadline) {
			return fmt.Errorf("hand over %d partitions: %w", held, m.Status().orTimeout())
		}
		select {
		case <-m.news:
		case p := <-m.drained:
			m.released(p)
		case <-announced:
			announced = nil
		case <-tick.C:
		}
		m.turn()
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// held says how many partitions are still to be handed over, and whether any of them is still in the hands of the handler.
func (m *Manager) held() (n int, draining bool) {
	for i := range m.slots {
		switch s := &m.slots[i]; s.state {
		case running, releasing, ending:
			n++
			draining = true
		case drained:
			if !s.given {
				n++
			}
		}
	}
	return n, draining
}

// turn notes that the loop is not stuck.
func (m *Manager) turn() {
	now := m.cfg.Clock()
	m.turned.Store(&now)
}

// kick wakes whoever waits on a channel of capacity one.
func (m *Manager) kick(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// see takes in an update of the backend.
func (m *Manager) see(u Update) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.cfg.Clock()
	m.judge.observe(now, u.Members)
	next := m.view
	next.at = now
	if u.Members != nil {
		next.members = make(map[string]Member, len(u.Members))
		for _, member := range u.Members {
			next.members[member.ID] = member
		}
		if !sameAssignees(m.view.members, next.members) {
			next.revision++
			next.moved = now
		} else if m.meter != nil && !sameWeights(m.view.members, next.members) {
			next.revision++
		}
		_, was := m.view.members[m.cfg.ID]
		_, is := next.members[m.cfg.ID]
		if was && !is {
			m.log.Warn("own record in the pool was removed, joining again")
			m.kick(m.renew)
		}
	}
	if u.Leases != nil {
		next.revision++
		next.leases = make([]Lease, m.cfg.Partitions)
		for p := range next.leases {
			next.leases[p].Partition = p
		}
		for _, l := range u.Leases {
			if l.Partition >= 0 && l.Partition < len(next.leases) {
				next.leases[l.Partition] = l
			}
		}
		if m.meter != nil && !slices.Equal(m.view.leases, next.leases) {
			next.moved = now
		}
	}
	m.view = next
	m.faulty(watching, nil)
	m.kick(m.news)
}

// sameAssignees says whether the same members may be given partitions, and the same have a record.
func sameAssignees(a, b map[string]Member) bool {
	if len(a) != len(b) {
		return false
	}
	for id, member := range a {
		other, ok := b[id]
		if !ok || other.Leaving != member.Leaving {
			return false
		}
	}
	return true
}

// assignees are the members that are to hold partitions. The member itself takes part, whatever its record says: nobody knows better whether it
// lives.
func (m *Manager) assignees(v view, leaving bool) []string {
	var members []string
	for id, member := range v.members {
		if id != m.cfg.ID && !member.Leaving {
			members = append(members, id)
		}
	}
	if !leaving {
		members = append(members, m.cfg.ID)
	}
	return members
}

// assignment returns who should hold what.
func (m *Manager) assignment(v view) []string {
	key := goalKey{revision: v.revision, leaving: m.leaving.Load()}
	if m.goal != nil && key == m.goalOf {
		return m.goal
	}
	members := m.assignees(v, key.leaving)
	m.goal, m.goalOf = partition.AssignWeighted(members, holders(v.leases), m.weights(members, v)), key
	m.relief.apply(m.goal, m.cfg.ID, members)
	return m.goal
}

// Status returns the state of this member and of the pool as it sees it. It may be called at any time.
func (m *Manager) Status() Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.status
	s.Running, s.Releasing = slices.Clone(s.Running), slices.Clone(s.Releasing)
	s.Leaving = m.leaving.Load()
	s.SeenAt = m.view.at
	s.ErrSince, s.Err = m.faults.first()
	_, s.Joined = m.view.members[m.cfg.ID]
	s.Members, s.Unowned = m.pool()
	return s
}
