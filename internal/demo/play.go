package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/outlane/outlane/internal/sandbox"
)

const (
	watchEvery = 200 * time.Millisecond
	// stepPatience bounds each wait for the pool to do what it should within seconds.
	stepPatience = 45 * time.Second
)

// window is a time in which something was broken, until the pool had caught up.
type window struct{ from, to time.Time }

// faults are what the demo broke, and when.
type faults struct {
	member     string // that was killed
	victim     string // its worker
	killedAt   time.Time
	partitions map[int]time.Time // of the victim → when another worker had claimed it
	outage     window
	caughtUp   time.Duration // after the return of NATS
	windows    []window
}

// play inserts the events and breaks things meanwhile. It returns when the pool has stored what it could.
func (d *demo) play(ctx context.Context) error {
	d.show.say("inserting %s events of %d teams, about %s a second", count(int64(d.opts.Events)), d.opts.Teams, count(int64(d.opts.Rate)))
	d.load = startLoad(ctx, d.box.DB, d.opts)
	ctx, cancel := context.WithCancel(ctx)
	watched := make(chan struct{})
	defer func() { cancel(); <-watched }()
	go func() { defer close(watched); d.watch(ctx) }()

	total := int64(d.opts.Events)
	for _, step := range []struct {
		at int64
		do func(context.Context) error
	}{
		{total / 6, d.killWorker},
		{total / 2, d.stopNATS},
		{total * 3 / 4, d.hurry},
	} {
		if err := d.reach(ctx, step.at); err != nil {
			return err
		}
		if err := step.do(ctx); err != nil {
			return err
		}
	}
	if err := d.load.wait(ctx); err != nil {
		return err
	}
	d.show.say("all events are committed")
	// What is not stored in time is for the check to report.
	err := d.awaitStored(ctx, drainPatience, d.load.poisoned())
	if errors.Is(err, errImpatient) {
		d.show.say("%s after the last commit, events still wait", drainPatience)
		return nil
	}
	return err
}

// watch shows how things stand, until ctx ends.
func (d *demo) watch(ctx context.Context) {
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	stored := int64(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		state := "NATS away"
		if d.box.JetStream.Conn().IsConnected() {
			state = "NATS up"
			if n, err := d.box.Stored(ctx); err == nil {
				stored = n
			}
		}
		alive := 0
		for _, w := range d.box.Workers {
			if w.Alive() {
				alive++
			}
		}
		committed := d.load.committed.Load()
		d.show.status(fmt.Sprintf("%s of %s committed, %s stored, %s waiting; %d workers, %s", count(committed),
			count(int64(d.opts.Events)), count(stored), count(max(0, committed-stored)), alive, state))
	}
}

// until asks every few milliseconds until the answer is true.
func until(ctx context.Context, patience time.Duration, ask func() (bool, error)) error {
	deadline := time.Now().Add(patience)
	for {
		ok, err := ask()
		if ok || err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return errImpatient
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

var errImpatient = errors.New("it takes too long")

// reach waits until so many events are committed, or all.
func (d *demo) reach(ctx context.Context, events int64) error {
	return until(ctx, drainPatience*2, func() (bool, error) {
		return d.load.committed.Load() >= events, d.load.failed()
	})
}

// awaitStored waits until no more than the given number of committed events is not stored.
func (d *demo) awaitStored(ctx context.Context, patience time.Duration, most int64) error {
	return until(ctx, patience, func() (bool, error) {
		stored, err := d.box.Stored(ctx)
		return err == nil && d.load.committed.Load()-stored <= most, ctx.Err()
	})
}

// calm waits until the pool has caught up with the producers, and notes the time since from as broken.
func (d *demo) calm(ctx context.Context, from time.Time) error {
	if err := d.awaitStored(ctx, stepPatience, int64(d.opts.Rate/10)); err != nil {
		return fmt.Errorf("wait for the pool to catch up: %w", err)
	}
	d.faults.windows = append(d.faults.windows, window{from, time.Now()})
	return nil
}

// awaitOwners waits until every worker owns partitions, and together all of them.
func (d *demo) awaitOwners(ctx context.Context) error {
	err := until(ctx, stepPatience, func() (bool, error) {
		claims, err := d.box.Claims(ctx)
		members := map[string]bool{}
		for _, c := range claims {
			members[c.Member] = true
		}
		return len(claims) == d.opts.Partitions && len(members) == d.opts.Workers && !members[d.faults.member], err
	})
	if err != nil {
		return fmt.Errorf("wait for the workers to share the partitions: %w", err)
	}
	return nil
}

// busiest is the member with the most partitions, and its worker.
func (d *demo) busiest(claims map[int]sandbox.Claim) (string, *sandbox.Worker, error) {
	owned := map[string]int{}
	member := ""
	for _, c := range claims {
		if owned[c.Member]++; owned[c.Member] > owned[member] {
			member = c.Member
		}
	}
	for _, w := range d.box.Workers {
		if strings.HasPrefix(member, w.ID+"-") || member == w.ID {
			return member, w, nil
		}
	}
	return "", nil, fmt.Errorf("find the worker behind the member %q: there is none", member)
}

// killWorker ends a worker by SIGKILL, waits until the others have its partitions, and starts it again.
func (d *demo) killWorker(ctx context.Context) error {
	before, err := d.box.Claims(ctx)
	if err != nil {
		return err
	}
	f := &d.faults
	member, victim, err := d.busiest(before)
	if err != nil {
		return err
	}
	f.member, f.victim, f.partitions = member, victim.ID, map[int]time.Time{}
	owned := 0
	for _, c := range before {
		if c.Member == member {
			owned++
		}
	}
	d.show.say("SIGKILL for %s, which owns %d partitions", victim.ID, owned)
	victim.Kill()
	f.killedAt = time.Now()
	err = until(ctx, stepPatience, func() (bool, error) {
		now, err := d.box.Claims(ctx)
		for part, c := range now {
			if _, taken := f.partitions[part]; before[part].Member == member && c.Member != member && !taken {
				f.partitions[part] = c.At
			}
		}
		return len(f.partitions) == owned, err
	})
	if err != nil {
		return fmt.Errorf("wait for the other workers to take over: %w", err)
	}
	d.show.say("the others have its partitions, %s later; starting %s again", span(time.Since(f.killedAt)), victim.ID)
	if err := victim.Start(); err != nil {
		return err
	}
	if err := d.awaitOwners(ctx); err != nil {
		return err
	}
	return d.calm(ctx, f.killedAt)
}

// stopNATS takes the server away for a while.
func (d *demo) stopNATS(ctx context.Context) error {
	d.show.say("stopping NATS for %s", d.opts.Outage)
	d.faults.outage.from = time.Now()
	d.box.NATS.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Until(d.faults.outage.from.Add(d.opts.Outage))):
	}
	if err := d.box.NATS.Start(); err != nil {
		return fmt.Errorf("start NATS again: %w", err)
	}
	d.faults.outage.to = time.Now()
	if err := d.calm(ctx, d.faults.outage.from); err != nil {
		return err
	}
	d.faults.caughtUp = time.Since(d.faults.outage.to)
	d.show.say("NATS is back; the pool had caught up %s later", span(d.faults.caughtUp))
	return nil
}

// hurry lets the producers insert as fast as they can.
func (d *demo) hurry(context.Context) error {
	d.show.say("the rest as fast as the producers can")
	d.faults.windows = append(d.faults.windows, window{time.Now(), time.Now().Add(time.Hour)})
	d.load.fullSpeed.Store(true)
	return nil
}
