package lease_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outlane/outlane/lease"
	"github.com/outlane/outlane/lease/leasetest"
)

// event is one thing that happens to a pool.
type event struct {
	kind      string
	who       int // of the members there are, modulo their number
	partition int
	then      time.Duration // how long to wait after it
}

func drawEvents(t *rapid.T, kinds ...string) []event {
	one := rapid.Custom(func(t *rapid.T) event {
		return event{
			kind:      rapid.SampledFrom(kinds).Draw(t, "kind"),
			who:       rapid.IntRange(0, 5).Draw(t, "who"),
			partition: rapid.IntRange(0, leasetest.Partitions-1).Draw(t, "partition"),
			then:      time.Duration(rapid.SampledFrom([]int{0, 1, 30, 100, 700, 3000, 6000}).Draw(t, "then")) * time.Millisecond,
		}
	})
	return rapid.SliceOfN(one, 1, 20).Draw(t, "events")
}

// simulation is a pool to which events happen. It holds two things against the manager: that two members never hold a partition by the same
// version of its lease, and that two members to which nothing happened never work on a partition at the same time.
type simulation struct {
	pool    *leasetest.Memory
	load    *traffic // nil without weights
	workers []*simulated
	rest    []*simulated // killed or stopped

	mu     sync.Mutex
	holder map[string]*simulated // by partition and version
	edited map[int]bool
	wrong  string
}

type simulated struct {
	*leasetest.Worker
	sim   *simulation
	tried bool // something happened to it
	ready chan struct{}
}

func (w *simulated) Gained(partitions []int) {
	<-w.ready
	w.Worker.Gained(partitions)
	w.sim.mu.Lock()
	defer w.sim.mu.Unlock()
	for _, p := range partitions {
		key := fmt.Sprintf("partition %d at version %s", p, w.HeldBy(p))
		if other := w.sim.holder[key]; other != nil && other != w {
			w.sim.wrong = fmt.Sprintf("%s is held by %s and %s", key, other.ID(), w.ID())
		}
		w.sim.holder[key] = w
		for _, other := range append(w.sim.workers, w.sim.rest...) {
			if other != w && !other.tried && !w.tried && !w.sim.edited[p] && has(other.Worker, p) {
				w.sim.wrong = fmt.Sprintf("%s and %s work on partition %d", other.ID(), w.ID(), p)
			}
		}
	}
}

func has(w *leasetest.Worker, p int) bool {
	for _, own := range w.Has() {
		if own == p {
			return true
		}
	}
	return false
}

func (s *simulation) join(t *testing.T, d time.Duration) {
	w := &simulated{sim: s, ready: make(chan struct{})}
	s.mu.Lock()
	name := fmt.Sprintf("w%d", len(s.workers)+len(s.rest))
	s.mu.Unlock()
	w.Worker = leasetest.Start(t, s.pool, name, d, func(c *lease.Config) {
		c.Handler = w
		if s.load != nil {
			s.load.weighed(c)
		}
	})
	s.mu.Lock()
	s.workers = append(s.workers, w)
	s.mu.Unlock()
	close(w.ready)
}

// take removes a worker from those that are to share the pool in the end.
func (s *simulation) take(i int) *simulated {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.workers[i]
	s.workers = append(s.workers[:i:i], s.workers[i+1:]...)
	s.rest = append(s.rest, w)
	return w
}

func (s *simulation) happen(t *testing.T, e event) {
	if e.kind == "join" || len(s.workers) == 0 {
		if len(s.workers) < 6 {
			s.join(t, []time.Duration{5 * time.Second, 5 * time.Second, 8 * time.Second}[e.who%3])
		}
		return
	}
	i := e.who % len(s.workers)
	w := s.workers[i]
	harm := func(tried bool, edited bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		w.tried = w.tried || tried
		s.edited[e.partition] = s.edited[e.partition] || edited
	}
	switch e.kind {
	case "kill":
		harm(true, false)
		s.take(i).Kill()
	case "stop":
		s.take(i).StopSoon()
	case "drain slowly":
		w.Hold()
	case "drain on":
		w.Unhold()
	case "down":
		harm(true, false)
		w.Way.Set(leasetest.Down)
	case "pause":
		harm(true, false)
		w.Way.Set(leasetest.Silent)
	case "mute":
		w.Way.Set(leasetest.Mute)
	case "heal":
		w.Way.Set(leasetest.Sound)
	case "remove member":
		harm(true, false)
		require.NoError(t, s.pool.Backend(t).Leave(t.Context(), w.ID()))
	case "give":
		harm(false, true)
		s.pool.SetHolder(t, e.partition, w.ID())
	case "empty":
		harm(false, true)
		s.pool.SetHolder(t, e.partition, "")
	case "delete":
		harm(false, true)
		s.pool.DeleteLease(t, e.partition)
	case "disturb":
		harm(false, true)
		s.pool.Disturb(t, e.partition)
	}
}

// simulate lets the events happen in a bubble of fake time, then undoes the faults, waits, and returns what is wrong. With rates, members have
// weights.
func simulate(t *testing.T, events []event, rates []uint64) (wrong string) {
	synctest.Test(t, func(t *testing.T) {
		s := &simulation{pool: &leasetest.Memory{}, holder: map[string]*simulated{}, edited: map[int]bool{}}
		if rates != nil {
			s.load = &traffic{}
			for p, rate := range rates {
				s.load.set(rate, p)
			}
			s.load.flow(t)
		}
		s.join(t, 5*time.Second)
		for _, e := range events {
			s.happen(t, e)
			<-time.After(e.then)
		}
		if len(s.workers) == 0 {
			s.join(t, 5*time.Second)
		}
		var last []*leasetest.Worker
		for _, w := range s.workers {
			w.Way.Set(leasetest.Sound)
			w.Unhold()
			last = append(last, w.Worker)
		}
		for _, w := range s.rest {
			w.Unhold()
		}
		// The longest way to rest: a member was just killed that leaves behind a duration of eight seconds.
		<-time.After(8*time.Second + 2*time.Second)
		if s.load == nil {
			wrong = leasetest.Unsettled(t, s.pool, last)
		} else {
			wrong = unrested(t, s.pool, last)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.wrong != "" {
			wrong = s.wrong
		}
		for _, w := range append(s.workers, s.rest...) {
			for _, call := range w.Wrong() {
				wrong = w.ID() + ": " + call
			}
		}
	})
	return wrong
}

// unrested says what keeps a pool with weights from rest, each partition in the hands of one of the workers.
func unrested(t *testing.T, pool *leasetest.Memory, workers []*leasetest.Worker) string {
	owned := func() string {
		working := 0
		for _, w := range workers {
			for _, p := range w.Has() {
				working++
				if l := pool.Leases(t)[p]; l.Holder != w.ID() {
					return fmt.Sprintf("%s works on partition %d, which %s holds", w.ID(), p, l.Holder)
				}
			}
		}
		if working != leasetest.Partitions {
			return fmt.Sprintf("%d partitions are worked on", working)
		}
		return ""
	}
	soon := func() (wrong string) { // a partition may just be handed over for its weight
		for range 60 {
			if wrong = owned(); wrong == "" {
				return ""
			}
			<-time.After(time.Second)
		}
		return wrong
	}
	if wrong := soon(); wrong != "" {
		return wrong
	}
	<-time.After(10 * time.Minute)
	moves := watchMoves(pool)
	<-time.After(10 * time.Minute)
	if n := moves.count(); n > 3 { // rates jitter, so that a weight may still have changed by a step
		return fmt.Sprintf("%d partitions were still moved", n)
	}
	return soon()
}

func TestSimulatedJoinsAndDeaths(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		events := drawEvents(rt, "join", "join", "kill", "stop", "drain slowly", "drain on")
		require.Empty(rt, simulate(t, events, nil))
	})
}

func TestSimulatedFaultsAndEdits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		events := drawEvents(rt, "join", "join", "kill", "stop", "drain slowly", "drain on", "down", "pause", "mute", "heal", "remove member",
			"give", "empty", "delete", "disturb")
		require.Empty(rt, simulate(t, events, nil))
	})
}

func TestSimulatedWeights(t *testing.T) {
	t.Parallel()
	type scenario struct {
		rates  []uint64
		events []event
	}
	scenarios := rapid.Custom(func(t *rapid.T) scenario {
		rate := rapid.SampledFrom([]uint64{0, 50, 300, 1000, 1000, 4000, 30000})
		return scenario{
			rates:  rapid.SliceOfN(rate, leasetest.Partitions, leasetest.Partitions).Draw(t, "rates"),
			events: drawEvents(t, "join", "join", "kill", "stop", "drain slowly", "drain on", "give", "delete"),
		}
	})
	for seed := range 12 { // they last long
		s := scenarios.Example(seed)
		require.Empty(t, simulate(t, s.events, s.rates), "%+v", s)
	}
}
