package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outlane/outlane/outbox"
	"github.com/outlane/outlane/partition"
)

// bareTable is outbox_events without its trigger: the same columns, constraints, indexes and storage. What the trigger fills in, the producer
// sends, or the column's default says, as a table for any other outbox would have it.
const bareTable = `CREATE SEQUENCE bare_seq;
CREATE TABLE bare_events (LIKE outbox_events INCLUDING ALL);
ALTER TABLE bare_events ALTER COLUMN seq SET DEFAULT nextval('bare_seq');
DO $$
DECLARE
	o text;
BEGIN
	FOREACH o IN ARRAY (SELECT coalesce(reloptions, '{}') FROM pg_class WHERE oid = 'outbox_events'::regclass) LOOP
		EXECUTE 'ALTER TABLE bare_events SET (' || o || ')';
	END LOOP;
	IF EXISTS (SELECT FROM pg_attribute WHERE attrelid = 'bare_events'::regclass AND attname = 'xact') THEN
		ALTER TABLE bare_events ALTER COLUMN xact SET DEFAULT pg_current_xact_id();
	END IF;
	IF EXISTS (SELECT FROM pg_attribute WHERE attrelid = 'bare_events'::regclass AND attname = 'xact_oldest') THEN
		ALTER TABLE bare_events ALTER COLUMN xact_oldest SET DEFAULT pg_snapshot_xmin(pg_current_snapshot());
	END IF;
END $$`

const (
	insertPartitions = 64
	insertMany       = 100  // events in one statement
	insertCopy       = 1000 // events in one COPY
)

// fresh is an event to insert.
type fresh struct {
	id, key, payload string
}

func freshEvents(n int) []fresh {
	events := make([]fresh, n)
	for i := range events {
		id := uuid.Must(uuid.NewV7()).String()
		key := "t_" + id[len(id)-3:]
		events[i] = fresh{id: id, key: key, payload: `{"team_id": "` + key + `", "text": "` + strings.Repeat("x", 165) + `"}`}
	}
	return events
}

// writer inserts events in one transaction.
type writer struct {
	name  string
	batch int
	write func(ctx context.Context, db *pgx.Conn, events []fresh) error
}

// columns of events, for unnest.
func columns(events []fresh) (ids, keys, payloads []string, partitions []int32) {
	for _, e := range events {
		ids, keys, payloads = append(ids, e.id), append(keys, e.key), append(payloads, e.payload)
		partitions = append(partitions, int32(partition.Of(e.key, insertPartitions)))
	}
	return ids, keys, payloads, partitions
}

func plainInsert(ctx context.Context, db *pgx.Conn, events []fresh) error {
	if e := events[0]; len(events) == 1 {
		_, err := db.Exec(ctx, "INSERT INTO bare_events (id, stream, topic, payload, partition, partition_key) VALUES ($1, 'S0', 'bench.0.event', $2, $3, $4)",
			e.id, e.payload, partition.Of(e.key, insertPartitions), e.key)
		return err
	}
	ids, keys, payloads, partitions := columns(events)
	_, err := db.Exec(ctx, `INSERT INTO bare_events (id, stream, topic, payload, partition, partition_key)
		SELECT id, 'S0', 'bench.0.event', payload::jsonb, partition, key FROM unnest($1::text[], $2::text[], $3::int[], $4::text[]) AS e (id, payload, partition, key)`,
		ids, payloads, partitions, keys)
	return err
}

func triggerInsert(ctx context.Context, db *pgx.Conn, events []fresh) error {
	if e := events[0]; len(events) == 1 {
		_, err := db.Exec(ctx, "INSERT INTO outbox_events (id, stream, topic, payload) VALUES ($1, 'S0', 'bench.0.event', $2)", e.id, e.payload)
		return err
	}
	ids, _, payloads, _ := columns(events)
	_, err := db.Exec(ctx, `INSERT INTO outbox_events (id, stream, topic, payload)
		SELECT id, 'S0', 'bench.0.event', payload::jsonb FROM unnest($1::text[], $2::text[]) AS e (id, payload)`, ids, payloads)
	return err
}

func plainCopy(ctx context.Context, db *pgx.Conn, events []fresh) error {
	_, err := db.CopyFrom(ctx, pgx.Identifier{"bare_events"}, []string{"id", "stream", "topic", "payload", "partition", "partition_key"},
		pgx.CopyFromSlice(len(events), func(i int) ([]any, error) {
			e := events[i]
			return []any{e.id, "S0", "bench.0.event", []byte(e.payload), int32(partition.Of(e.key, insertPartitions)), e.key}, nil
		}))
	return err
}

func triggerCopy(ctx context.Context, db *pgx.Conn, events []fresh) error {
	_, err := db.CopyFrom(ctx, pgx.Identifier{"outbox_events"}, []string{"id", "stream", "topic", "payload"},
		pgx.CopyFromSlice(len(events), func(i int) ([]any, error) {
			return []any{events[i].id, "S0", "bench.0.event", []byte(events[i].payload)}, nil
		}))
	return err
}

func outboxEvent(e fresh) outbox.Event {
	return outbox.Event{ID: e.id, Stream: "S0", Topic: "bench.0.event", Key: e.key, Payload: json.RawMessage(e.payload)}
}

func enqueue(ctx context.Context, db *pgx.Conn, events []fresh) error {
	list := make([]outbox.Event, len(events))
	for i, e := range events {
		list[i] = outboxEvent(e)
	}
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error { return outbox.Enqueue(ctx, tx, list...) })
}

func enqueueCopy(ctx context.Context, db *pgx.Conn, events []fresh) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		_, err := outbox.EnqueueCopy(ctx, tx, func(yield func(outbox.Event) bool) {
			for _, e := range events {
				if !yield(outboxEvent(e)) {
					return
				}
			}
		})
		return err
	})
}

// inTransaction makes a plain statement what Enqueue is: one in a transaction of the caller.
func inTransaction(write func(context.Context, *pgx.Conn, []fresh) error) func(context.Context, *pgx.Conn, []fresh) error {
	return func(ctx context.Context, db *pgx.Conn, events []fresh) error {
		return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error { return write(ctx, tx.Conn(), events) })
	}
}

// comparisons of writers; each is compared with the first of its group.
var comparisons = [][]writer{
	{{"one row, bare table", 1, plainInsert}, {"one row, with the trigger", 1, triggerInsert}},
	{{"one row in BEGIN…COMMIT, bare table", 1, inTransaction(plainInsert)}, {"Enqueue by one", 1, enqueue}},
	{{"100 rows a statement, bare table", insertMany, plainInsert}, {"100 rows a statement, with the trigger", insertMany, triggerInsert}},
	{{"100 rows in BEGIN…COMMIT, bare table", insertMany, inTransaction(plainInsert)}, {"Enqueue by 100", insertMany, enqueue}},
	{{"COPY of 1,000 rows, bare table", insertCopy, plainCopy}, {"COPY of 1,000 rows, with the trigger", insertCopy, triggerCopy},
		{"EnqueueCopy of 1,000", insertCopy, enqueueCopy}},
}

// inserts is section e.
func inserts(ctx context.Context, l *lab) ([]Row, error) {
	template, err := l.template(ctx, "inserts", insertPartitions, nil)
	if err != nil {
		return nil, err
	}
	s, err := l.site(ctx, template, siteOptions{})
	if err != nil {
		return nil, err
	}
	if _, err := s.db.Exec(ctx, bareTable, pgx.QueryExecModeSimpleProtocol); err != nil {
		return nil, fmt.Errorf("make a bare table: %w", err)
	}
	var rows []Row
	for _, writers := range []int{1, 8, 50} {
		l.say("%s", number(writers, "writer"))
		r, err := s.insertRows(ctx, writers)
		if err != nil {
			return rows, err
		}
		rows = append(rows, r...)
	}
	notified, err := s.notifications(ctx)
	if err != nil {
		return rows, err
	}
	return append(rows, notified), s.close(ctx)
}

func (s *site) insertRows(ctx context.Context, writers int) ([]Row, error) {
	// Every writer in turn, several times, on connections that stay.
	pool, err := pgxpool.New(ctx, fmt.Sprintf("%s&pool_max_conns=%d", s.url, writers))
	if err != nil {
		return nil, fmt.Errorf("connect to Postgres: %w", err)
	}
	defer pool.Close()
	samples := make([][][]float64, len(comparisons))
	for range pick(s.lab, 1, 5, 7) {
		for i, group := range comparisons {
			for j, w := range group {
				if samples[i] == nil {
					samples[i] = make([][]float64, len(group))
				}
				perEvent, err := s.insert(ctx, pool, writers, w)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", w.name, err)
				}
				samples[i][j] = append(samples[i][j], perEvent)
			}
		}
	}
	var rows []Row
	for i, group := range comparisons {
		bare := row(group[0].name, "µs an event", samples[i][0]...)
		for j, w := range group[1:] {
			r := row(number(writers, "writer")+": "+w.name, "µs an event", samples[i][j+1]...).against(bare.Name, bare.Value).
				note("%s events/s", figure(1e6/median(samples[i][j+1])))
			if r = r.target("≤ 1.35"); w.batch == insertCopy {
				r = r.target("≤ 1.2")
			}
			rows = append(rows, r)
		}
	}
	return rows, nil
}

// insert has writers insert for a while, into empty tables, and returns microseconds per event, all writers together.
func (s *site) insert(ctx context.Context, pool *pgxpool.Pool, writers int, w writer) (float64, error) {
	if _, err := s.db.Exec(ctx, "TRUNCATE outbox_events, bare_events"); err != nil {
		return 0, err
	}
	span := pick(s.lab, 50*time.Millisecond, 250*time.Millisecond, 3*time.Second)
	var (
		count atomic.Int64
		group sync.WaitGroup
		mu    sync.Mutex
		fault error
		from  time.Time
		ready = make(chan struct{})
		begun sync.WaitGroup
	)
	begun.Add(writers)
	for range writers {
		group.Go(func() {
			conn, err := pool.Acquire(ctx)
			if err == nil {
				defer conn.Release()
				err = w.write(ctx, conn.Conn(), freshEvents(min(w.batch, 2))) // prepares the statement
			}
			begun.Done()
			<-ready
			for err == nil && time.Since(from) < span {
				if err = w.write(ctx, conn.Conn(), freshEvents(w.batch)); err == nil {
					count.Add(int64(w.batch))
				}
			}
			if err != nil {
				mu.Lock()
				fault = errors.Join(fault, err)
				mu.Unlock()
			}
		})
	}
	begun.Wait()
	from = time.Now()
	close(ready)
	group.Wait()
	return time.Since(from).Seconds() * 1e6 / float64(max(count.Load(), 1)), fault
}

// notifications counts how often inserts notify while a worker is busy.
func (s *site) notifications(ctx context.Context) (Row, error) {
	s.lab.say("notifications while a worker is busy")
	if _, err := s.db.Exec(ctx, "TRUNCATE outbox_events, bare_events"); err != nil {
		return Row{}, err
	}
	if err := s.startWorkers(ctx, 1); err != nil {
		return Row{}, err
	}
	var heard, inserted atomic.Int64
	config, err := pgx.ParseConfig(s.url)
	if err != nil {
		return Row{}, err
	}
	config.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) { heard.Add(1) }
	listener, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return Row{}, err
	}
	defer func() { _ = listener.Close(ctx) }() // only listens
	var channel string
	if err := listener.QueryRow(ctx, "SELECT 'outlane_' || left(md5('public'), 16)").Scan(&channel); err != nil {
		return Row{}, err
	}
	if _, err := listener.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		return Row{}, err
	}
	conn, err := s.db.Acquire(ctx)
	if err != nil {
		return Row{}, err
	}
	defer conn.Release()
	busy := pick(s.lab, 300*time.Millisecond, 3*time.Second, 10*time.Second)
	began := time.Now()
	var settled int64
	for time.Since(began) < busy+busy/2 {
		if err := triggerInsert(ctx, conn.Conn(), freshEvents(1)); err != nil {
			return Row{}, err
		}
		if err := listener.Ping(ctx); err != nil { // reads what has come
			return Row{}, err
		}
		inserted.Add(1)
		if settled == 0 && time.Since(began) > busy/2 { // the first ones may find it asleep
			settled = inserted.Load()
			heard.Store(0)
		}
		time.Sleep(2 * time.Millisecond)
	}
	r := row("notifications while a worker is busy", "", float64(heard.Load())).target("≤ 0").note("during %s inserts", amount(int(inserted.Load()-settled)))
	return r, s.stopWorkers()
}
