package leasebench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/outlane/outlane/lease"
)

// baseline measures what it would cost to renew each partition's Lease by itself, as one leader election for each would: the same writes and
// the same watches, without anything else. A member's record stands for a partition's here.
func (b *bench) baseline(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	errs := make(chan error, b.Members)
	for m := range b.Members {
		backend, err := b.pool.newBackend()
		if err != nil {
			return err
		}
		defer backend.Close()
		running.Go(func() {
			for ctx.Err() == nil {
				_ = backend.Watch(ctx, time.Second, func(lease.Update) {}) // begun anew when it ends
			}
		})
		for p := m; p < b.Partitions; p += b.Members {
			running.Go(func() {
				if err := b.renewAlone(ctx, backend, fmt.Sprintf("partition-%04d", p)); err != nil && ctx.Err() == nil {
					select {
					case errs <- err:
					default:
					}
				}
			})
		}
	}
	select { // until all have begun
	case <-time.After(b.Duration):
	case <-ctx.Done():
		return ctx.Err()
	}
	writes, _, bytes, cpu, err := b.during(ctx, b.Steady)
	if err != nil {
		return err
	}
	wanted := float64(b.Partitions) * 3 / b.Duration.Seconds()
	b.row("baseline, each partition renewed by itself: writes", "%.0f/s of the %.0f/s that are needed", writes, wanted)
	b.row("baseline: received by each member", "%.0f kB/s", bytes/float64(b.Members)/1024)
	b.row("baseline: sent by the API server in all", "%.1f MB/s", bytes/1e6)
	b.row("baseline: CPU of the API server", "%.2f cores", cpu)
	select {
	case err := <-errs:
		b.say("  a renewal failed: %v", err)
	default:
	}
	return nil
}

func (b *bench) renewAlone(ctx context.Context, backend *lease.Kubernetes, id string) error {
	me := lease.Member{ID: id, Duration: b.Duration}
	var failed error
	call := func(write func(context.Context, lease.Member) error) {
		limited, cancel := context.WithTimeout(ctx, b.Duration/2)
		defer cancel()
		if err := write(limited, me); err != nil {
			failed = err
		}
	}
	pause := time.NewTimer(rand.N(b.Duration / 3))
	defer pause.Stop()
	for write := backend.Join; ; write = backend.Renew {
		select {
		case <-ctx.Done():
			return failed
		case <-pause.C:
		}
		call(write)
		pause.Reset(b.Duration / 3)
	}
}
