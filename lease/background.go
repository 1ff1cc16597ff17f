package lease

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// keepRenewing joins the pool and keeps this member's record alive until ctx ends.
func (m *Manager) keepRenewing(ctx context.Context) {
	joined, stuck, announced, failures := false, false, false, 0
	spread := jitter(m.cfg.Duration / 3) // so that members that were started by one command do not renew in step
	for ctx.Err() == nil {
		if idle := m.cfg.Clock().Sub(*m.turned.Load()); idle > m.cfg.Duration+m.cfg.callTimeout() {
			// The loop hangs in the handler. To renew now would be to hold partitions that nobody works on.
			if !stuck {
				m.log.Error("handler blocks, no longer renewing", "for", idle.String())
			}
			stuck = true
			m.pause(ctx, m.cfg.retryAfter(), nil)
			continue
		}
		stuck = false
		me := Member{ID: m.cfg.ID, Duration: m.cfg.Duration, Leaving: m.leaving.Load(), Weights: m.sample()}
		err := m.renewOnce(ctx, me, joined)
		joined = err == nil || joined && !errors.Is(err, ErrGone)
		if errors.Is(err, ErrGone) {
			continue
		}
		if ctx.Err() != nil {
			return
		}
		m.settle(renewing, err)
		if me.Leaving && !announced {
			announced = true
			close(m.announced)
		}
		if err != nil {
			m.pause(ctx, m.beforeRenewal(failures), m.renew)
			failures++
		} else {
			failures = 0
			m.pause(ctx, m.cfg.Duration/3-jitter(m.cfg.Duration/30)-spread, m.renew)
			spread = 0
		}
	}
}

func (m *Manager) renewOnce(ctx context.Context, me Member, joined bool) error {
	call, cancel := context.WithTimeout(ctx, m.cfg.callTimeout())
	defer cancel()
	write := m.cfg.Backend.Join
	if joined {
		write = m.cfg.Backend.Renew
	}
	if err := write(call, me); err != nil {
		return err
	}
	m.mu.Lock()
	m.status.RenewedAt = m.cfg.Clock()
	m.mu.Unlock()
	return nil
}

// keepWatching watches the backend until ctx ends.
func (m *Manager) keepWatching(ctx context.Context) {
	for failures := 0; ctx.Err() == nil; failures++ {
		began := m.cfg.Clock()
		err := m.cfg.Backend.Watch(ctx, m.cfg.every(), m.see)
		if m.cfg.Clock().Sub(began) > m.cfg.Duration {
			failures = 0
		}
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			err = errors.New("watch ended")
		}
		m.settle(watching, err)
		m.pause(ctx, m.backoff(failures)/2, nil)
	}
}

// beforeRenewal is the pause after so many failures in a row and one. While the record would still be renewed in time, it is a part of the time that
// is left.
func (m *Manager) beforeRenewal(failures int) time.Duration {
	pause := m.backoff(failures)
	m.mu.Lock()
	left := m.cfg.Duration - m.cfg.Clock().Sub(m.status.RenewedAt)
	m.mu.Unlock()
	if left > 0 {
		pause = min(pause, max(left/4, m.cfg.retryAfter()))
	}
	return pause
}

// backoff is the pause after so many failures in a row and one: longer each time, so that a backend that cannot keep up is asked less.
func (m *Manager) backoff(failures int) time.Duration {
	most := max(m.cfg.Duration/3, m.cfg.retryAfter())
	d := min(m.cfg.retryAfter()<<min(failures, 10), most)
	return d + jitter(d/2)
}

// pause waits until the time is over, ctx ends, or early is signalled.
func (m *Manager) pause(ctx context.Context, d time.Duration, early <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-early:
	}
}

// jitter returns a random duration below d, so that members that were stopped by one outage do not go on in step.
func jitter(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return rand.N(d)
}
