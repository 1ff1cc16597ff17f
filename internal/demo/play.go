package demo

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	watchEvery    = 200 * time.Millisecond
	reconnectWait = 100 * time.Millisecond
	// stepPatience bounds each wait for the pool to do what it should within seconds.
	stepPatience = 45 * time.Second
)

// window is a time in which something was broken, until the pool had caught up.
type window struct{ from, to time.Time }

// faults are what the demo broke, and when.
type faults struct {
	victim     string
	killedAt   time.Time
	partitions map[int]time.Time // of the victim → when another worker had claimed it
	outage     window
	caughtUp   time.Duration // after the return of NATS
	windows    []window
}

// play inserts the events and breaks things meanwhile. It returns when the pool has stored what it could.
func (d *demo) play(ctx context.Context) error {
	d.show.say("inserting %s events of %d teams, about %s a second", count(int64(d.opts.Events)), d.opts.Teams, count(int64(d.opts.Rate)))
	d.load = startLoad(ctx, d.servers.db, d.opts)
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
		state := "NATS is away"
		if d.servers.conn.IsConnected() {
			state = "NATS is up"
			if n, err := d.ask(ctx); err == nil {
				stored = n
			}
		}
		alive := 0
		for _, w := range d.workers {
			if w.alive() {
				alive++
			}
		}
		committed := d.load.committed.Load()
		d.show.status(fmt.Sprintf("committed %s of %s, stored %s, waiting %s, %d workers, %s", count(committed), count(int64(d.opts.Events)),
			count(stored), count(max(0, committed-stored)), alive, state))
	}
}

// ask counts the stored messages; a server that is away makes it fail soon.
func (d *demo) ask(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return d.servers.stored(ctx)
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
		stored, err := d.ask(ctx)
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

// awaitOwners waits until the pool owns every partition.
func (d *demo) awaitOwners(ctx context.Context) error {
	err := until(ctx, stepPatience, func() (bool, error) {
		owners, err := d.owners(ctx)
		n := 0
		for _, o := range owners {
			n += len(o)
		}
		return n == d.opts.Partitions && len(owners) == d.opts.Workers, err
	})
	if err != nil {
		d.showLogs()
		return fmt.Errorf("wait for the workers to take the partitions: %w", err)
	}
	return nil
}

// owners maps each worker to its partitions and when it claimed them.
func (d *demo) owners(ctx context.Context) (map[string]map[int]time.Time, error) {
	rows, err := d.servers.db.Query(ctx, "SELECT owner, partition, claimed_at FROM outlane_partitions WHERE owner IS NOT NULL")
	if err != nil {
		return nil, fmt.Errorf("ask for the partitions' owners: %w", err)
	}
	defer rows.Close()
	owners := map[string]map[int]time.Time{}
	for rows.Next() {
		var (
			owner string
			part  int
			at    time.Time
		)
		if err := rows.Scan(&owner, &part, &at); err != nil {
			return nil, fmt.Errorf("read the partitions' owners: %w", err)
		}
		if owners[owner] == nil {
			owners[owner] = map[int]time.Time{}
		}
		owners[owner][part] = at
	}
	return owners, rows.Err()
}

// killWorker ends a worker by SIGKILL, waits until the others have its partitions, and starts it again.
func (d *demo) killWorker(ctx context.Context) error {
	owners, err := d.owners(ctx)
	if err != nil {
		return err
	}
	victim := d.workers[0]
	for _, w := range d.workers {
		if len(owners[w.id]) > len(owners[victim.id]) {
			victim = w
		}
	}
	f := &d.faults
	f.victim, f.partitions = victim.id, map[int]time.Time{}
	d.show.say("SIGKILL for %s, which owns %d partitions", victim.id, len(owners[victim.id]))
	victim.kill()
	f.killedAt = time.Now()
	err = until(ctx, stepPatience, func() (bool, error) {
		now, err := d.owners(ctx)
		if err != nil {
			return false, err
		}
		for _, w := range d.workers {
			for part, at := range now[w.id] {
				_, lost := owners[victim.id][part]
				if _, taken := f.partitions[part]; lost && !taken && w != victim {
					f.partitions[part] = at
				}
			}
		}
		return len(f.partitions) == len(owners[victim.id]), nil
	})
	if err != nil {
		return fmt.Errorf("wait for the other workers to take over: %w", err)
	}
	d.show.say("the others have its partitions, %s later; starting %s again", span(time.Since(f.killedAt)), victim.id)
	if err := victim.start(); err != nil {
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
	d.servers.nats.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Until(d.faults.outage.from.Add(d.opts.Outage))):
	}
	if err := d.servers.nats.Start(); err != nil {
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
