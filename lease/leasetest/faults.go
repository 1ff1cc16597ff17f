package leasetest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/outlane/outlane/lease"
)

// ErrDown is what a backend that is cut off answers.
var ErrDown = errors.New("backend is down")

// Mode is how a member reaches its backend.
type Mode int

// The modes of Faults.
const (
	Sound  Mode = iota
	Down        // calls fail at once, and a watch breaks
	Silent      // calls hang until their context ends, and a watch shows nothing more; when the mode ends, they go on
	Mute        // writes take effect, and fail; watching works
)

// Faults stands between a manager and its backend and breaks the way between them.
type Faults struct {
	lease.Backend

	mu      sync.Mutex
	mode    Mode
	changed chan struct{}
}

// NewFaults returns a way to the backend that is sound.
func NewFaults(b lease.Backend) *Faults {
	return &Faults{Backend: b, changed: make(chan struct{})}
}

// Set changes how the backend is reached, for calls under way too.
func (f *Faults) Set(mode Mode) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mode = mode
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *Faults) now() (Mode, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mode, f.changed
}

// pass waits while the way is silent, and fails if it is down.
func (f *Faults) pass(ctx context.Context) error {
	for {
		mode, changed := f.now()
		switch mode {
		case Down:
			return ErrDown
		case Silent:
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-changed:
			}
		default:
			return nil
		}
	}
}

func (f *Faults) write(ctx context.Context, call func() error) error {
	if err := f.pass(ctx); err != nil {
		return err
	}
	err := call()
	if mode, _ := f.now(); mode == Mute {
		return ErrDown
	}
	return err
}

// Join implements lease.Backend.
func (f *Faults) Join(ctx context.Context, member lease.Member) error {
	return f.write(ctx, func() error { return f.Backend.Join(ctx, member) })
}

// Renew implements lease.Backend.
func (f *Faults) Renew(ctx context.Context, member lease.Member) error {
	return f.write(ctx, func() error { return f.Backend.Renew(ctx, member) })
}

// Leave implements lease.Backend.
func (f *Faults) Leave(ctx context.Context, id string) error {
	return f.write(ctx, func() error { return f.Backend.Leave(ctx, id) })
}

// Bury implements lease.Backend.
func (f *Faults) Bury(ctx context.Context, member lease.Member) error {
	return f.write(ctx, func() error { return f.Backend.Bury(ctx, member) })
}

// Swap implements lease.Backend.
func (f *Faults) Swap(ctx context.Context, swaps []lease.Swap) (done []int, err error) {
	err = f.write(ctx, func() (err error) {
		done, err = f.Backend.Swap(ctx, swaps)
		return err
	})
	if err != nil {
		return nil, err
	}
	return done, nil
}

// Watch implements lease.Backend.
func (f *Faults) Watch(ctx context.Context, every time.Duration, see func(lease.Update)) error {
	if err := f.pass(ctx); err != nil {
		return err
	}
	watch, cancel := context.WithCancel(ctx)
	defer cancel()
	err := f.Backend.Watch(watch, every, func(u lease.Update) {
		if f.pass(watch) != nil {
			cancel()
			return
		}
		see(u)
	})
	if ctx.Err() == nil && watch.Err() != nil {
		return ErrDown
	}
	return err
}
