package leasetest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/lease"
)

// Worker is a member of a pool under test.
type Worker struct {
	*lease.Manager
	Way *Faults // to the backend

	stop context.CancelFunc
	done chan error // closed after Run's result was sent
	t    testing.TB

	mu     sync.Mutex
	state  map[int]string // by partition: "running", "releasing" or nothing
	gained int
	lost   int
	wrong  []string      // calls out of order
	hold   chan struct{} // if not nil, Release waits for it or for the end of its context
}

// Option changes the configuration of a Worker.
type Option func(*lease.Config)

// Start starts a member with the given duration. The test's end stops it.
func Start(t testing.TB, pool Pool, name string, d time.Duration, options ...Option) *Worker {
	t.Helper()
	w := &Worker{Way: NewFaults(pool.Backend(t)), done: make(chan error, 1), state: map[int]string{}, t: t}
	cfg := lease.Config{ID: lease.NewID(name), Partitions: Partitions, Backend: w.Way, Handler: w, Duration: d}
	for _, o := range options {
		o(&cfg)
	}
	var err error
	w.Manager, err = lease.New(cfg)
	require.NoError(t, err)
	var ctx context.Context
	ctx, w.stop = context.WithCancel(context.Background())
	go func() {
		w.done <- w.Run(ctx)
		close(w.done)
	}()
	t.Cleanup(func() {
		w.Unhold()
		w.Way.Set(Sound)
		w.stop()
		if err := <-w.done; err != nil {
			t.Logf("%s stopped: %v", w.ID(), err)
		}
		require.Empty(t, w.Wrong(), "calls of the handler out of order")
	})
	return w
}

// Kill cuts the member off for good, as a SIGKILL does: it still runs, but nobody hears of it.
func (w *Worker) Kill() { w.Way.Set(Down) }

// Stop stops the member as SIGTERM does, waits for it, and returns the result of Run.
func (w *Worker) Stop() error {
	w.stop()
	return <-w.done
}

// StopSoon is Stop without waiting.
func (w *Worker) StopSoon() { w.stop() }

// Hold makes every Release wait until Unhold.
func (w *Worker) Hold() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hold == nil {
		w.hold = make(chan struct{})
	}
}

// Unhold ends Hold.
func (w *Worker) Unhold() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hold != nil {
		close(w.hold)
		w.hold = nil
	}
}

// Has returns the partitions that the handler works on, sorted; those being released count.
func (w *Worker) Has() []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	has := []int{}
	for p := range w.state {
		has = append(has, p)
	}
	slices.Sort(has)
	return has
}

// Counts returns how often a partition was gained and lost.
func (w *Worker) Counts() (gained, lost int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.gained, w.lost
}

// Wrong returns the calls that broke the contract of lease.Handler.
func (w *Worker) Wrong() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.wrong)
}

func (w *Worker) expect(p int, call string, states ...string) {
	if !slices.Contains(states, w.state[p]) {
		w.wrong = append(w.wrong, call+" while "+w.state[p])
	}
}

// Gained implements lease.Handler.
func (w *Worker) Gained(partitions []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range partitions {
		w.expect(p, "Gained", "")
		w.state[p] = "running"
		w.gained++
	}
}

// Release implements lease.Handler.
func (w *Worker) Release(ctx context.Context, p int) {
	w.mu.Lock()
	w.expect(p, "Release", "running", "") // "" if it was lost before this goroutine ran
	if w.state[p] == "running" {
		w.state[p] = "releasing"
	}
	hold := w.hold
	w.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.state, p)
}

// Lost implements lease.Handler.
func (w *Worker) Lost(p int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.expect(p, "Lost", "running", "releasing", "") // "" if Release was about to return
	delete(w.state, p)
	w.lost++
}
