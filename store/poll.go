package store

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
)

// pollSequence reads the sequence. It must be executed before pollSnapshot's snapshot is taken. The function takes the sequence's lock. A plain
// SELECT of last_value does not, and every now and then sees what nextval writes ahead into the log: a number up to 32 too high.
const pollSequence = `SELECT coalesce(pg_sequence_last_value('{literal}.outbox_events_seq'), 0)`

// pollSnapshot reads the snapshot and the next transaction id. A snapshot's xmax is one past the last transaction that has *ended*: those
// with higher ids that are open are not listed in it, and have no name but their range up to the next id. That id is
// known without taking one: age() is its distance, modulo 2^32, from the id it is given.
//
// A server that recovers from the crash of one of its processes keeps its start time, but since version 15 sets its statistics back. Before 15
// they would have to be waited for, and only lost connections tell.
const pollSnapshot = `SELECT p.snapshot::text, age(pg_snapshot_xmax(p.snapshot)::xid),
	greatest(pg_postmaster_start_time(), CASE WHEN current_setting('server_version_num')::int >= 150000 THEN pg_stat_get_bgwriter_stat_reset_time() END),
	current_setting('transaction_read_only') = 'on', c.generation, c.sequence_file = pg_relation_filenode('{literal}.outbox_events_seq'), c.settling::text
	FROM {schema}.outlane_config c CROSS JOIN LATERAL (SELECT pg_current_snapshot() AS snapshot OFFSET 0) p`

// pollShorten takes a transaction id and lets it end, whereupon the next snapshot's xmax is past all the ids of before.
const pollShorten = `SELECT pg_current_xact_id()`

// unlistedMax is how many ids past a snapshot's xmax are written out. One transaction with many savepoints may take any number of them.
const unlistedMax = 1000

const (
	readHorizon = `SELECT CASE WHEN c.sequence_file = pg_relation_filenode('{literal}.outbox_events_seq') THEN h.seq ELSE 0 END, c.generation
	FROM {schema}.outlane_horizon h CROSS JOIN {schema}.outlane_config c`

	// saveHorizon saves nothing if the sequence has been found to have gone backwards since the horizon was computed.
	saveHorizon = `UPDATE {schema}.outlane_horizon SET seq = $1 FROM {schema}.outlane_config c
	WHERE seq < $1 AND c.generation = $2 AND c.sequence_file = pg_relation_filenode('{literal}.outbox_events_seq')`

	maxSeq = `SELECT coalesce((SELECT e.seq FROM {schema}.outbox_events e ORDER BY e.seq DESC LIMIT 1), 0)`

	setIdle = `SELECT setval('{literal}.outlane_idle', $1)`
)

const (
	lockConfig = `SELECT c.generation FROM {schema}.outlane_config c WHERE c.generation = $1 FOR UPDATE`

	raiseAllEpochs = `UPDATE {schema}.outlane_partitions SET epoch = epoch + 1
	WHERE partition IN (SELECT p.partition FROM {schema}.outlane_partitions p ORDER BY p.partition FOR UPDATE)
	AND EXISTS (SELECT FROM {schema}.outlane_config c WHERE c.generation = $1)`

	zeroCursors = `UPDATE {schema}.outlane_lanes SET cursor = 0, saved_at = now()
	WHERE EXISTS (SELECT FROM {schema}.outlane_config c WHERE c.generation = $1)`

	zeroHorizon = `UPDATE {schema}.outlane_horizon SET seq = 0
	WHERE EXISTS (SELECT FROM {schema}.outlane_config c WHERE c.generation = $1)`

	nextGeneration = `UPDATE {schema}.outlane_config SET generation = generation + 1,
		sequence_file = pg_relation_filenode('{literal}.outbox_events_seq'),
		settling = CASE WHEN (SELECT e.seq FROM {schema}.outbox_events e ORDER BY e.seq DESC LIMIT 1) > (` + pollSequence + `) THEN '0'::xid8 END
		WHERE generation = $1 RETURNING generation`
)

// A sequence that was set back gives numbers twice. Whoever looks for a number then cannot know whether it has seen both rows. So the sequence
// is lifted, and when everybody who may still hold a number from before has ended, all cursors are set back once more.
const (
	lockSettling = `SELECT FROM {schema}.outlane_config c WHERE c.settling = '0' FOR UPDATE`

	// liftSequence moves the sequence past every number that the table has. Steps are taken one by one, because setval could undo an
	// insert's step; a long way is jumped, which no insert can overtake in that moment.
	liftSequence = `SELECT CASE WHEN w.way > 100000 THEN setval('{literal}.outbox_events_seq', w.highest)
		ELSE (SELECT max(nextval('{literal}.outbox_events_seq')) FROM generate_series(1, w.way)) END
	FROM (SELECT m.seq AS highest, m.seq - (` + pollSequence + `) AS way
		FROM (SELECT e.seq FROM {schema}.outbox_events e ORDER BY e.seq DESC LIMIT 1) m) w
	WHERE w.way > 0 AND EXISTS (SELECT FROM {schema}.outlane_config c WHERE c.settling = '0')`

	noteLift = `UPDATE {schema}.outlane_config SET settling = '1' WHERE settling = '0'`

	noteNextXact = `UPDATE {schema}.outlane_config SET settling = $1::text::xid8 WHERE settling = '1'`
)

// seen is what this Store has seen of the sequence.
type seen struct {
	mu         sync.Mutex
	generation int64
	high       int64 // the highest number
}

// note takes in that in some generation the number n was seen.
func (s *seen) note(generation, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case generation > s.generation:
		s.generation, s.high = generation, n
	case generation == s.generation:
		s.high = max(s.high, n)
	}
}

// highest is the highest number seen so far, and its generation.
func (s *seen) highest() (generation, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.generation, s.high
}

func (s *seen) now() int64 {
	generation, _ := s.highest()
	return generation
}

// Poll looks at what is new: the sequence, then a snapshot. It costs the same however many events there are. Its deadline is five seconds.
func (s *Store) Poll(ctx context.Context) (Poll, error) {
	p, c, err := s.poll(ctx)
	if err == nil && crowded(p, c) {
		p, c, err = s.pollShortened(ctx)
	}
	return s.polled(ctx, p, c, err)
}

// PollArrivals is a Poll and, in the same round trip, what Arrivals brings after it. Where the poll has to be made again, the rows would be older
// than it and are left out: complete is false then.
func (s *Store) PollArrivals(ctx context.Context, from, to int64, gaps []int64, partitions []int) (p Poll, rows []Event, complete bool, err error) {
	look, rowsOf, err := arrivalsCall(from, to, gaps, partitions)
	if err != nil {
		return Poll{}, nil, false, err
	}
	p, c, err := s.poll(ctx, look)
	if complete = err == nil && !crowded(p, c); complete {
		rows = rowsOf()
	} else if err == nil {
		p, c, err = s.pollShortened(ctx)
	}
	if p, err = s.polled(ctx, p, c, err); err != nil {
		return Poll{}, nil, false, err
	}
	return p, rows, complete, nil
}

// crowded says whether too many transaction ids are not listed by the snapshot.
func crowded(p Poll, c circumstances) bool { return c.unlisted > unlistedMax && !p.ReadOnly }

func (s *Store) pollShortened(ctx context.Context) (Poll, circumstances, error) {
	if err := s.runFor(ctx, "end a transaction", pollTimeout, call{sql: pollShorten}); err != nil {
		return Poll{}, circumstances{}, err
	}
	return s.poll(ctx)
}

// polled ends a poll that brought p, or err.
func (s *Store) polled(ctx context.Context, p Poll, c circumstances, err error) (Poll, error) {
	if err == nil && c.settling != nil {
		err = s.settle(ctx, &p, c)
	}
	if err != nil {
		return Poll{}, err
	}
	return p, nil
}

// circumstances are what Poll keeps to itself.
type circumstances struct {
	unlisted int64   // transaction ids from the snapshot's xmax on
	settling *string // outlane_config's column
}

// poll polls, and makes more calls after it in the same round trip.
func (s *Store) poll(ctx context.Context, more ...call) (p Poll, c circumstances, err error) {
	var snapshot string
	found, sameFile := false, false
	generation, high := s.seen.highest() // before the sequence is read: what others see meanwhile may be further
	calls := append([]call{
		{sql: pollSequence, row: func(r pgx.Rows) error { return r.Scan(&p.LastSeq) }},
		{sql: pollSnapshot, row: func(r pgx.Rows) error {
			found = true
			return r.Scan(&snapshot, &c.unlisted, &p.Started, &p.ReadOnly, &p.Generation, &sameFile, &c.settling)
		}},
	}, more...)
	err = s.runFor(ctx, "poll", pollTimeout, calls...)
	if err != nil {
		return p, c, err
	}
	if !found {
		return p, c, fmt.Errorf("poll: %w", s.notSetUp())
	}
	if err := p.read(snapshot, c.unlisted); err != nil {
		return p, c, fmt.Errorf("poll: %w", err)
	}
	s.seen.note(p.Generation, p.LastSeq)
	p.Backwards = p.Generation == generation && p.LastSeq < high || !sameFile
	return p, c, nil
}

// settle does the next step of what is left to do after numbers were given twice.
func (s *Store) settle(ctx context.Context, p *Poll, c circumstances) error {
	switch *c.settling {
	case "0":
		return s.run(ctx, "lift the sequence", call{sql: lockSettling}, call{sql: liftSequence}, call{sql: noteLift})
	case "1":
		next := strconv.FormatUint(p.Xmax+uint64(max(c.unlisted, 0)), 10)
		return s.run(ctx, "note the next transaction", call{sql: noteNextXact, args: []any{next}})
	}
	before, err := strconv.ParseUint(*c.settling, 10, 64)
	if err != nil {
		return fmt.Errorf("read what is settling: %w", err)
	}
	p.Backwards = p.Backwards || p.Xmin >= before
	return nil
}

// read takes a snapshot's text, xmin:xmax:open,open, and how many ids past xmax have been given.
func (p *Poll) read(snapshot string, unlisted int64) error {
	parts := strings.SplitN(snapshot, ":", 3)
	if len(parts) != 3 {
		return fmt.Errorf("read the snapshot %q", snapshot)
	}
	var err error
	if p.Xmin, err = strconv.ParseUint(parts[0], 10, 64); err != nil {
		return fmt.Errorf("read the snapshot's xmin: %w", err)
	}
	if p.Xmax, err = strconv.ParseUint(parts[1], 10, 64); err != nil {
		return fmt.Errorf("read the snapshot's xmax: %w", err)
	}
	for x := range strings.SplitSeq(parts[2], ",") {
		if x == "" {
			continue
		}
		id, err := strconv.ParseUint(x, 10, 64)
		if err != nil {
			return fmt.Errorf("read the snapshot's transactions: %w", err)
		}
		p.InProgress = append(p.InProgress, id)
	}
	for i := range uint64(max(unlisted, 0)) {
		p.InProgress = append(p.InProgress, p.Xmax+i)
	}
	slices.Sort(p.InProgress)
	return nil
}

// Horizon is the saved horizon: no row with a seq at or under it can still appear. 0 if nothing is known, as after the sequence has become another.
func (s *Store) Horizon(ctx context.Context) (int64, error) {
	var h, generation int64
	err := s.run(ctx, "read the horizon", call{sql: readHorizon, row: func(r pgx.Rows) error { return r.Scan(&h, &generation) }})
	if err == nil {
		s.seen.note(generation, h)
	}
	return h, err
}

// SaveHorizon saves the horizon, unless a higher one is saved already or the sequence has gone backwards meanwhile.
func (s *Store) SaveHorizon(ctx context.Context, horizon int64) error {
	return s.run(ctx, "save the horizon", call{sql: saveHorizon, args: []any{horizon, s.seen.now()}})
}

// SequenceReset deals with a sequence that went backwards or became another one, as Poll.Backwards tells: every cursor and the
// horizon go to 0, so that every row is looked at again, and every epoch goes up. Of several workers that notice the same thing, the first does
// it; for the others it does nothing. If the table has higher numbers than the sequence, polls then lift the sequence past them, and say
// Backwards once more when all have ended who may hold a number that was given twice.
func (s *Store) SequenceReset(ctx context.Context, last int64) error {
	g := []any{s.seen.now()}
	return s.run(ctx, "set the cursors back", call{sql: lockConfig, args: g}, call{sql: raiseAllEpochs, args: g}, call{sql: zeroCursors, args: g},
		call{sql: zeroHorizon, args: g}, call{sql: nextGeneration, args: g, row: func(r pgx.Rows) error {
			var generation int64
			err := r.Scan(&generation)
			s.log.Info("all cursors are set to 0, because the outbox's sequence went backwards", "last", last, "generation", generation)
			return err
		}})
}

// MaxSeq is the highest seq in the table; 0 if the table is empty. If it is above Poll.LastSeq, numbers are being given twice; the next Poll
// then says Backwards.
func (s *Store) MaxSeq(ctx context.Context) (int64, error) {
	var highest int64
	generation := s.seen.now()
	err := s.run(ctx, "read the highest seq", call{sql: maxSeq, row: func(r pgx.Rows) error { return r.Scan(&highest) }})
	if err == nil {
		s.seen.note(generation, highest)
	}
	return highest, err
}

// SetIdle raises or lowers the mark that makes inserts notify.
func (s *Store) SetIdle(ctx context.Context, idle bool) error {
	mark := 1
	if idle {
		mark = 2
	}
	return s.run(ctx, "set the idle mark", call{sql: setIdle, args: []any{mark}})
}
