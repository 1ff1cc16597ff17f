package worker

import (
	"context"
	"slices"
	"time"

	"github.com/outlane/outlane/internal/crash"
	"github.com/outlane/outlane/store"
)

// contestPause is the least time between losing an epoch and claiming the partition again, while the lease still says that it is ours. It
// keeps two that both believe so from raising epochs against each other.
const contestPause = time.Second

// A partition whose row somebody has locked is tried again after lockedPause, and spoken of after lockedTries.
const (
	lockedPause = 50 * time.Millisecond
	lockedTries = 20
)

// owner is the side of the worker that the lease manager talks to.
type owner struct{ w *Worker }

// Gained notes that the leases of partitions are ours; they are claimed in the database next.
func (o owner) Gained(partitions []int) {
	w := o.w
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range partitions {
		w.held[n] = time.Time{}
	}
	w.changed.Broadcast()
}

// Release drains a partition. It returns when everything that was acknowledged is marked and the cursors are saved, or when ctx ends.
func (o owner) Release(ctx context.Context, n int) {
	w := o.w
	w.mu.Lock()
	delete(w.held, n)
	p := w.parts[n]
	if p == nil {
		w.mu.Unlock()
		return
	}
	crash.At(crash.Releasing)
	w.stopPart(p, true)
	stop := context.AfterFunc(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.changed.Broadcast()
	})
	defer stop()
	for !p.quiet() && ctx.Err() == nil && p.state == partDraining {
		w.changed.Wait()
	}
	drained := p.quiet() && p.state == partDraining
	w.mu.Unlock()
	if drained {
		w.savePartition(ctx, p)
		crash.At(crash.Released)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopPart(p, false)
	if p.quiet() { // else it is not claimed again before what is under way has ended
		w.forget(p)
	}
	w.cfg.Metrics.handovers.WithLabelValues("released").Inc()
}

// Lost stops a partition at once; nothing of it is written any more.
func (o owner) Lost(n int) {
	w := o.w
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.held, n)
	if p := w.parts[n]; p != nil {
		w.stopPart(p, false)
		w.cfg.Metrics.handovers.WithLabelValues("lost").Inc()
	}
}

// fence stops a partition whose epoch has moved on. If the lease still says that it is ours, it is claimed again after a pause.
func (w *Worker) fence(p *part) {
	if p.state == partStopped || w.parts[p.n] != p { // or it was claimed anew meanwhile, by ourselves
		return
	}
	w.stopPart(p, false)
	w.cfg.Metrics.epochConflicts.Inc()
	w.log.Warn("partition stopped: its epoch has moved on", "partition", p.n, "epoch", p.epoch)
	if _, ok := w.held[p.n]; ok {
		w.claimAfter(p.n, contestPause)
	}
}

// doubt claims p again after what is under way is settled: what was written about it is not known, and a claim reads it.
func (w *Worker) doubt(p *part) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.state != partActive || w.parts[p.n] != p {
		return
	}
	w.stopPart(p, true)
	if _, ok := w.held[p.n]; ok {
		w.claimAfter(p.n, contestPause)
	}
}

// claimAfter keeps partition n from being claimed for d.
func (w *Worker) claimAfter(n int, d time.Duration) {
	w.held[n] = time.Now().Add(d)
	time.AfterFunc(d, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.changed.Broadcast()
	})
}

// forget removes p, unless it was replaced.
func (w *Worker) forget(p *part) {
	if w.parts[p.n] == p {
		delete(w.parts, p.n)
	}
}

// claimer claims in the database what the leases give, until ctx ends.
func (w *Worker) claimer(ctx context.Context) {
	failures := 0
	for {
		partitions := w.nextClaims(ctx)
		if partitions == nil {
			return
		}
		if err := w.claim(ctx, partitions); err != nil {
			if ctx.Err() != nil {
				return
			}
			failures++
			w.databaseFailedLocked("claim", err)
			w.wait(ctx, retryDelay(failures))
			continue
		}
		failures = 0
	}
}

// nextClaims waits until there is something to claim.
func (w *Worker) nextClaims(ctx context.Context) []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		if ctx.Err() != nil {
			return nil
		}
		var partitions []int
		now := time.Now()
		for n, after := range w.held {
			p := w.parts[n]
			if p != nil && p.state != partActive && p.quiet() {
				w.forget(p)
				p = nil
			}
			if p == nil && w.inSession && !now.Before(after) {
				partitions = append(partitions, n)
			}
		}
		if len(partitions) > 0 {
			slices.Sort(partitions)
			return partitions
		}
		w.changed.Wait()
	}
}

// claim raises the partitions' epochs and starts their lanes.
func (w *Worker) claim(ctx context.Context, partitions []int) error {
	began := time.Now()
	crash.At(crash.Claiming)
	claims, err := w.cfg.Database.Claim(ctx, w.member, partitions)
	if err != nil {
		return err
	}
	crash.At(crash.Claimed)
	w.claimLater(partitions, claims)
	parts := w.activate(claims, began)
	// The streams are read after the feed has begun to hand over these partitions' rows: a stream is in the one or in the other.
	streams, err := w.cfg.Database.Streams(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		for _, p := range parts {
			w.stopPart(p, false)
		}
		return err
	}
	for _, p := range parts {
		for _, name := range streams {
			w.laneOf(p, name)
		}
		p.known = true
		for _, l := range p.lanes {
			w.kick(l)
		}
	}
	if len(parts) > 0 {
		numbers := make([]int, len(parts))
		for i, p := range parts {
			numbers[i] = p.n
		}
		w.log.Info("partitions claimed", "count", len(parts), "partitions", ranges(numbers), "took", time.Since(began).Round(time.Millisecond).String())
	}
	return nil
}

// claimLater has partitions claimed again that were left out of claims.
func (w *Worker) claimLater(partitions []int, claims []store.Claim) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range claims {
		delete(w.locked, c.Partition)
	}
	for _, n := range partitions {
		_, held := w.held[n]
		if !held || slices.ContainsFunc(claims, func(c store.Claim) bool { return c.Partition == n }) {
			continue
		}
		w.claimAfter(n, lockedPause)
		if w.locked[n]++; w.locked[n] == lockedTries {
			w.log.Warn("partition cannot be claimed: somebody has its row in outlane_partitions locked", "partition", n)
		}
	}
}

func (w *Worker) activate(claims []store.Claim, began time.Time) []*part {
	w.mu.Lock()
	defer w.mu.Unlock()
	parts := make([]*part, 0, len(claims))
	active := slices.Clone(w.active)
	for _, c := range claims {
		if _, ok := w.held[c.Partition]; !ok || !w.inSession {
			continue // given away meanwhile
		}
		p := &part{n: c.Partition, epoch: c.Epoch, verified: began, lanes: make(map[string]*lane),
			cursors: make(map[string]store.LaneCursor), parked: make(map[store.Lane]map[string]struct{})}
		for _, l := range c.Lanes {
			p.cursors[l.Stream] = l
		}
		for _, k := range c.ParkedKeys {
			if p.parked[k.Lane] == nil {
				p.parked[k.Lane] = make(map[string]struct{})
			}
			p.parked[k.Lane][k.Key] = struct{}{}
		}
		w.parts[c.Partition] = p
		if !slices.Contains(active, p.n) {
			active = append(active, p.n)
		}
		for stream := range p.cursors {
			w.laneOf(p, stream)
		}
		w.cfg.Metrics.handovers.WithLabelValues("claimed").Inc()
		parts = append(parts, p)
	}
	w.claims++
	w.setActive(active)
	return parts
}

// checkEpochs asks for the epochs of all partitions once a second: a person's decision (retry, skip) or another owner raises them.
func (w *Worker) checkEpochs(ctx context.Context) error {
	w.mu.Lock()
	active := w.active
	w.mu.Unlock()
	if len(active) == 0 {
		return nil
	}
	began := time.Now()
	epochs, err := w.cfg.Database.Epochs(ctx, active)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range active {
		p := w.parts[n]
		if p == nil || p.state != partActive {
			continue
		}
		switch epoch, ok := epochs[n]; {
		case (!ok || epoch != p.epoch) && p.verified.Before(began):
			w.fence(p)
		case p.verified.Before(began):
			p.verified = began
		}
	}
	return nil
}
