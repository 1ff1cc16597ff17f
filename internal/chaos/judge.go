package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/outlane/outlane/internal/history"
	"github.com/outlane/outlane/internal/verify"
)

const (
	// drainPatience is how long the pool may take without any progress. The longest wait between two tries of a worker is a minute.
	drainPatience = 3 * time.Minute
	// mostListed bounds how many offenders of a kind are named.
	mostListed = 10
)

// unsettled is what the pool has still to do.
const unsettled = `SELECT count(*) FROM outbox_events e WHERE NOT processed
	AND NOT EXISTS (SELECT FROM outbox_dead_letters d WHERE d.event_id = e.id AND coalesce(d.resolution, '') <> 'retried')
	AND NOT EXISTS (SELECT FROM outbox_parked_events p WHERE p.event_id = e.id AND p.released_at IS NULL)`

// judge decides about what blocks, waits until the pool has settled everything, stops it, and returns what table and streams show to be wrong.
func (r *run) judge(ctx context.Context) ([]string, error) {
	settled, err := r.drain(ctx)
	if err != nil {
		return nil, err
	}
	if settled {
		if err := r.unblock(ctx); err != nil {
			return nil, err
		}
		if settled, err = r.drain(ctx); err != nil {
			return nil, err
		}
	}
	if settled {
		r.heal(ctx, "wait for what lanes say of themselves", r.nothingIsStuck)
	}
	for _, w := range r.box.Workers {
		if strings.HasPrefix(w.ID, "worker-") && !w.Alive() {
			r.blame("%s has ended by itself; its log ends so:\n%s", w.ID, w.Tail())
		}
	}
	if err := r.box.StopWorkers(); err != nil {
		r.blame("not every worker stopped as it should: %v", err)
	}
	r.searchLogs()
	return r.check(ctx)
}

// drain returns when nothing waits, or when for a long time nothing has moved, which is wrong.
func (r *run) drain(ctx context.Context) (settled bool, err error) {
	var (
		last  int64 = -1
		moved       = time.Now()
		said        = time.Now()
	)
	for ctx.Err() == nil {
		limited, cancel := context.WithTimeout(ctx, time.Minute)
		var n int64
		asked := time.Now()
		err := r.box.DB.QueryRow(limited, unsettled).Scan(&n)
		took := time.Since(asked)
		cancel()
		switch {
		case err != nil:
			n = last
		case n == 0:
			r.log.say("everything is settled")
			return true, nil
		case n != last:
			last, moved = n, time.Now()
		}
		if time.Since(said) > 5*time.Second {
			said = time.Now()
			r.log.say("%d events wait", n)
		}
		if time.Since(moved) > drainPatience {
			r.blame("%d events wait, and for %s none of them has moved (%v)", n, drainPatience, err)
			r.status(ctx)
			return false, nil
		}
		rest(ctx, max(200*time.Millisecond, 2*took)) // a large table takes its time
	}
	return false, ctx.Err()
}

// nothingIsStuck returns nil if no lane says that it waits: all of them have nothing to wait for.
func (r *run) nothingIsStuck(ctx context.Context) error {
	states, err := r.store.LaneStates(ctx)
	if err == nil && len(states) > 0 {
		err = fmt.Errorf("%d lanes say that they wait, such as partition %d of %s: %s (%s)", len(states), states[0].Lane.Partition, states[0].Lane.Stream,
			states[0].Reason, states[0].Detail)
	}
	return err
}

// status says what the pool thinks of itself, and has the workers write down what they are doing, which ends them.
func (r *run) status(ctx context.Context) {
	out, err := r.box.Output(ctx, "status")
	if err != nil {
		r.log.say("%v", err)
	}
	r.log.say("outlane status says:\n%s", out)
	for _, w := range r.box.Workers {
		w.Signal(syscall.SIGQUIT)
	}
}

// unblock decides about every dead letter that blocks its key: mended or skipped, by turns.
func (r *run) unblock(ctx context.Context) error {
	for n := 0; ; n++ {
		rows, err := r.box.DB.Query(ctx, "SELECT event_id FROM outbox_dead_letters WHERE resolved_at IS NULL AND blocks ORDER BY seq LIMIT 1")
		if err != nil {
			return fmt.Errorf("look for dead letters that block: %w", err)
		}
		var id string
		for rows.Next() {
			if err := rows.Scan(&id); err != nil {
				return fmt.Errorf("look for dead letters that block: %w", err)
			}
		}
		if err := rows.Err(); err != nil {
			return fmt.Errorf("look for dead letters that block: %w", err)
		}
		if id == "" {
			return nil
		}
		how := "skipped"
		if n%2 == 0 {
			how = "mended and retried"
		}
		if _, known := r.spoilt[id]; !known {
			r.blame("dead letter %s was not poisoned", id)
			how = "skipped"
		}
		if err := r.resolve(ctx, id, how); err != nil {
			return fmt.Errorf("decide about %s: %w", id, err)
		}
	}
}

// row is what the table says of an event.
type row struct {
	attempts                                int
	dead, skipped, ever, parked, everParked bool
}

// place is where an event is stored.
type place struct {
	stream    string
	seq       uint64
	partition int
}

// check compares table, streams and the producers' memory.
func (r *run) check(ctx context.Context) ([]string, error) {
	if err := r.eventually(ctx, "wait for the streams", r.streamsWell); err != nil {
		return nil, err
	}
	r.log.say("checking")
	rows, err := r.rows(ctx)
	if err != nil {
		return nil, err
	}
	stored := map[uuid.UUID]place{}
	var strange []string
	report, err := verify.Run(ctx, verify.Options{
		Store: r.store, JetStream: r.box.JetStream, Complete: true,
		Strict: func(name string) bool { return streamOf(name).strict },
		OnMessage: func(m history.Message) {
			id, err := uuid.Parse(m.ID)
			if err != nil {
				strange = append(strange, "message with the id "+m.ID)
				return
			}
			if _, twice := stored[id]; !twice {
				stored[id] = place{m.Stream, m.StreamSeq, m.Partition}
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("verify: %w", err)
	}
	var text bytes.Buffer
	if err := report.WriteText(&text); err != nil {
		return nil, err
	}
	r.log.say("outlane verify says:\n%s", text.String())
	faults := newFindings()
	for _, s := range strange {
		faults.add("messages nobody sent", s)
	}
	if !report.Clean() {
		faults.add("faults of outlane verify", "see above")
	}
	if report.Waiting+report.InFlight+report.Parked+report.Expired > 0 {
		faults.add("events that are not settled", fmt.Sprintf("waiting %d, in flight %d, parked %d, expired %d", report.Waiting, report.InFlight, report.Parked, report.Expired))
	}
	r.load.ledger.compare(rows, stored, faults)
	r.load.ledger.compareOrder(rows, stored, faults)
	return faults.list(), nil
}

func (r *run) rows(ctx context.Context) (map[uuid.UUID]row, error) {
	result, err := r.box.DB.Query(ctx, `SELECT e.id::uuid, e.attempts, d.event_id IS NOT NULL AND d.resolved_at IS NULL, coalesce(d.resolution = 'skipped', false),
			d.event_id IS NOT NULL, p.event_id IS NOT NULL AND p.released_at IS NULL, p.event_id IS NOT NULL
		FROM outbox_events e LEFT JOIN outbox_dead_letters d ON d.event_id = e.id LEFT JOIN outbox_parked_events p ON p.event_id = e.id`)
	if err != nil {
		return nil, fmt.Errorf("read the table: %w", err)
	}
	defer result.Close()
	rows := map[uuid.UUID]row{}
	for result.Next() {
		var (
			id uuid.UUID
			e  row
		)
		if err := result.Scan(&id, &e.attempts, &e.dead, &e.skipped, &e.ever, &e.parked, &e.everParked); err != nil {
			return nil, fmt.Errorf("read the table: %w", err)
		}
		rows[id] = e
	}
	return rows, result.Err()
}

// compare holds table and streams against what the producers were told.
func (l *ledger) compare(rows map[uuid.UUID]row, stored map[uuid.UUID]place, faults *findings) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, e := range l.events {
		at, there := stored[id]
		row, inTable := rows[id]
		switch {
		case e.outcome == rolledBack && (inTable || there):
			faults.add("events that were rolled back, and exist", id.String())
		case e.outcome == committed && !inTable:
			faults.add("events that were committed, and are not in the table", id.String())
		case !inTable && there:
			faults.add("events that are stored, and not in the table", fmt.Sprintf("%s in %s", id, at.stream))
		case !inTable:
		case there && (row.dead || row.skipped):
			faults.add("dead letters that are stored", id.String())
		case !there && !row.dead && !row.skipped:
			faults.add("events that are nowhere", id.String())
		}
		if row.ever && !e.poisoned {
			faults.add("dead letters that were not poisoned", id.String())
		}
		if row.attempts > 0 && !e.poisoned {
			faults.add("attempts that were counted although nothing is wrong with the event", id.String())
		}
	}
	for id := range rows {
		if _, known := l.events[id]; !known {
			faults.add("rows that nobody inserted", id.String())
		}
	}
	for id := range stored {
		if _, known := l.events[id]; !known {
			faults.add("messages that nobody inserted", id.String())
		}
	}
}

// compareOrder holds each stream against the order in which each producer had its transactions. Events that a decision was taken about are out
// of it.
func (l *ledger) compareOrder(rows map[uuid.UUID]row, stored map[uuid.UUID]place, faults *findings) {
	l.mu.Lock()
	defer l.mu.Unlock()
	type lane struct {
		producer  uint32
		stream    string
		partition int
	}
	type step struct {
		id   uuid.UUID
		turn uint32
		seq  uint64
	}
	lanes := map[lane][]step{}
	for id, at := range stored {
		e, row := l.events[id], rows[id]
		if e.producer >= stranger || e.turn == 0 || row.ever || row.everParked {
			continue
		}
		key := lane{e.producer, at.stream, at.partition}
		lanes[key] = append(lanes[key], step{id, e.turn, at.seq})
	}
	for key, steps := range lanes {
		slices.SortFunc(steps, func(a, b step) int { return int(a.turn) - int(b.turn) })
		for i := 1; i < len(steps); i++ {
			if a, b := steps[i-1], steps[i]; a.seq > b.seq {
				faults.add("events out of the order of their producer", fmt.Sprintf("%s at %d of %s, partition %d, was inserted after %s at %d was committed",
					b.id, b.seq, key.stream, key.partition, a.id, a.seq))
			}
		}
	}
}

// searchLogs looks for what no worker may ever say.
func (r *run) searchLogs() {
	for _, w := range r.box.Workers {
		text, err := os.ReadFile(filepath.Clean(w.Log))
		if errors.Is(err, fs.ErrNotExist) {
			continue // it never started
		}
		if err != nil {
			r.blame("read the log of %s: %v", w.ID, err)
			continue
		}
		for _, word := range []string{"panic: ", "fatal error: ", "WARNING: DATA RACE"} {
			if bytes.Contains(text, []byte(word)) {
				r.blame("the log of %s has %q", w.ID, word)
			}
		}
	}
}

// findings are what is wrong, by kind.
type findings struct{ kinds map[string][]string }

func newFindings() *findings { return &findings{kinds: map[string][]string{}} }

func (f *findings) add(kind, which string) { f.kinds[kind] = append(f.kinds[kind], which) }

func (f *findings) list() []string {
	var list []string
	for kind, which := range f.kinds {
		slices.Sort(which)
		text := fmt.Sprintf("%d %s: %s", len(which), kind, strings.Join(which[:min(len(which), mostListed)], ", "))
		if len(which) > mostListed {
			text += ", …"
		}
		list = append(list, text)
	}
	slices.Sort(list)
	return list
}
