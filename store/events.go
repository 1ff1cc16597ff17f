package store

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outlane/outlane/partition"
)

// alive is false for rows that are dead letters (open or skipped) or parked. Only rows with an error can be either, so that ordinary ones cost
// nothing. They are scalar subqueries, not EXISTS, because they must be looked up by id and never hashed whole.
const alive = `(e.error IS NULL OR (
		(SELECT d.resolution IS DISTINCT FROM 'retried' FROM {schema}.outbox_dead_letters d WHERE d.event_id = e.id) IS NOT TRUE
		AND (SELECT k.released_at IS NULL FROM {schema}.outbox_parked_events k WHERE k.event_id = e.id) IS NOT TRUE))`

const (
	// storedSize is what a row's body takes in the table: no more than it has, less if it is compressed. It is known without reading the body.
	storedSize = `coalesce(pg_column_size(e.payload), 0) + coalesce(pg_column_size(e.payload_bytes), 0) + coalesce(pg_column_size(e.headers), 0)`

	// leastSize is what a payload has at least, known without reading it. JSON takes up to four times its text in the table.
	leastSize = `greatest(octet_length(e.payload_bytes), pg_column_size(e.payload) / 8, 0)`

	// plainTime leaves out what Go's time.Time or JSON cannot hold.
	plainTime = `CASE WHEN e.created_at >= '0001-01-01 00:00:00Z' AND e.created_at < '9999-12-31 00:00:00Z' THEN e.created_at END`

	// $6 is the largest body that comes along at once.
	laneColumns = `e.ctid, e.id, e.seq, e.topic, e.partition_key, e.content_type, ` + plainTime + `, e.attempts, ` + storedSize + `, ` + leastSize + `,
		CASE WHEN ` + storedSize + ` <= $6 THEN e.payload::text END, CASE WHEN ` + storedSize + ` <= $6 THEN e.payload_bytes END,
		CASE WHEN ` + storedSize + ` <= $6 THEN e.headers::text END`

	// fetchRange is the lane's index scan. The stream is compared with an array of one so that the planner does not see it as a constant: then
	// rows ordered by stream and seq can only come from outbox_events_lane, and never from outbox_events_seq_order, which would read all lanes' rows.
	fetchRange = `SELECT ` + laneColumns + ` FROM {schema}.outbox_events e
		WHERE e.stream = ANY ($1::text[]) AND e.partition = $2 AND e.seq > $3 AND e.seq <= $4 AND NOT e.processed AND ` + alive + `
		ORDER BY e.stream, e.seq FETCH FIRST $5 ROWS WITH TIES`

	// fetchLate looks late numbers up one by one. OFFSET 0 keeps the planner from turning that around.
	fetchLate = `(SELECT ` + laneColumns + ` FROM unnest($7::bigint[]) WITH ORDINALITY AS l(seq, place)
		CROSS JOIN LATERAL (SELECT e.ctid, e.* FROM {schema}.outbox_events e
			WHERE e.stream = ANY ($1::text[]) AND e.partition = $2 AND e.seq = l.seq AND NOT e.processed AND ` + alive + ` OFFSET 0) e
		ORDER BY l.place FETCH FIRST $5 ROWS WITH TIES)
		UNION ALL (` + fetchRange + `)`

	fetchBodies = `SELECT e.id, e.payload::text, e.payload_bytes, e.headers::text FROM unnest($1::text[]) WITH ORDINALITY AS b(id, place)
		CROSS JOIN LATERAL (SELECT * FROM {schema}.outbox_events e WHERE e.id = b.id OFFSET 0) e ORDER BY b.place`

	// fetchBody is what fetchRange brings along at once; larger bodies are read afterwards, as many as are wanted.
	fetchBody = 16 << 10
)

const (
	// arrivalBody is the largest body that Arrivals brings along: rows with more are stored out of line, or compressed.
	arrivalBody = 2000

	arrivalColumns = `e.ctid, e.seq, e.xact, m.id, m.stream, m.topic, m.partition_key, m.partition, m.content_type, m.created_at, m.attempts, m.whole,
		m.payload, m.payload_bytes, m.headers`

	// arrival completes rows that the caller wants. $4 is the set of its partitions as a bit string, so that the size of the set costs nothing.
	arrival = `LEFT JOIN LATERAL (SELECT e.id, e.stream, e.topic, e.partition_key, e.partition, e.content_type, ` + plainTime + ` AS created_at,
			e.attempts, s.whole, CASE WHEN s.whole THEN e.payload::text END AS payload, CASE WHEN s.whole THEN e.payload_bytes END AS payload_bytes,
			CASE WHEN s.whole THEN e.headers::text END AS headers
		FROM (SELECT ` + storedSize + ` <= $5 AS whole) s
		WHERE get_bit($4::bytea, e.partition) = 1 AND NOT e.processed AND ` + alive + `) m ON true`

	arrivals = `SELECT ` + arrivalColumns + ` FROM unnest($3::bigint[]) WITH ORDINALITY AS g(seq, place)
			CROSS JOIN LATERAL (SELECT e.ctid, e.* FROM {schema}.outbox_events e WHERE e.seq = g.seq OFFSET 0) e ` + arrival + `
		UNION ALL
		SELECT ` + arrivalColumns + ` FROM {schema}.outbox_events e ` + arrival + ` WHERE e.seq > $1 AND e.seq <= $2`

	// missing gives pairs of numbers with nothing between them: those before the first row, then those after each row that has a gap behind it.
	missing = `SELECT $1::bigint, coalesce((SELECT e.seq FROM {schema}.outbox_events e WHERE e.seq > $1 AND e.seq <= $2 ORDER BY e.seq LIMIT 1), $2 + 1)
		UNION ALL
		SELECT w.seq, w.next FROM (SELECT e.seq, lead(e.seq, 1, $2::bigint + 1) OVER (ORDER BY e.seq) AS next
			FROM {schema}.outbox_events e WHERE e.seq > $1 AND e.seq <= $2) w WHERE w.next > w.seq + 1`

	// streams jumps from each stream to the next one in the index, instead of reading all rows.
	streams = `WITH RECURSIVE s(stream) AS (
			(SELECT e.stream FROM {schema}.outbox_events e ORDER BY e.stream LIMIT 1)
			UNION ALL
			SELECT n.stream FROM s CROSS JOIN LATERAL (
				SELECT e.stream FROM {schema}.outbox_events e WHERE e.stream > s.stream ORDER BY e.stream LIMIT 1) n
		) SELECT s.stream FROM s`
)

// Fetch reads rows of one lane that are to be published: neither processed nor dead letters nor parked, with after < seq <= upto or a seq in
// late (of those only numbers at or under after count), in one snapshot, ordered by seq.
//
// It brings at most limit rows, and none after those that reached maxBytes, but always one. Rows with the same seq (a sequence that was set back
// gives numbers twice) come together, even beyond these bounds. more says that it stopped early, and there may be more; it is never set without events.
//
// Bodies that are larger than Config.LargestBody stay out (Event.TooLarge).
func (s *Store) Fetch(ctx context.Context, lane Lane, after, upto int64, late []int64, limit, maxBytes int) (events []Event, more bool, err error) {
	limit = max(limit, 1)
	c := call{sql: fetchRange, args: []any{[]string{lane.Stream}, lane.Partition, after, upto, limit, fetchBody}}
	if len(late) > 0 {
		late = slices.DeleteFunc(slices.Clone(late), func(seq int64) bool { return seq > after })
		slices.Sort(late)
		c.sql, c.args = fetchLate, append(c.args, slices.Compact(late))
	}
	var stored []int64
	fresh, largest := 0, s.largest()
	shared := names{}
	var place Place
	var seq, size, least int64
	var attempts int
	id, topic, key := text{}, text{shared: shared}, text{shared: shared}
	body := newBody(shared, &chunks{})
	columns := []any{&place, &id, &seq, &topic, &key, &body.contentType, &body.createdAt, &attempts, &size, &least, &body.payload, &body.bytes, &body.headers}
	c.row = func(r pgx.Rows) error {
		if err := r.Scan(columns...); err != nil {
			return err
		}
		e := Event{ID: id.is, Seq: seq, Stream: lane.Stream, Topic: topic.is, Key: key.is, Partition: lane.Partition, Attempts: attempts, Place: place}
		body.fill(&e)
		large := size
		if e.Omitted = size > fetchBody; e.Omitted && least > largest {
			e.TooLarge, large = least, 0
		}
		if e.Seq > after {
			fresh++
		}
		events, stored = append(events, e), append(stored, large)
		return nil
	}
	if err := s.run(ctx, "fetch events", c); err != nil {
		return nil, false, err
	}
	more = fresh >= limit || len(events)-fresh >= limit
	kept := full(events, stored, limit, maxBytes)
	more = more || len(kept) < len(events)
	kept, whole, err := s.bodies(ctx, kept, maxBytes)
	if err != nil {
		return nil, false, err
	}
	return kept, len(kept) > 0 && (more || !whole), nil
}

// full returns the events, by seq, that make a page: until one of the bounds is reached, and then the rest of the last one's number.
// stored is what bodies take in the table, which counts while they were left out.
func full(events []Event, stored []int64, limit, maxBytes int) []Event {
	var bytes int64
	for i, e := range events {
		if i > 0 && (i >= limit || bytes >= int64(maxBytes)) && e.Seq != events[i-1].Seq {
			return events[:i]
		}
		if e.Omitted {
			bytes += stored[i] // 0 if it stays out
		} else {
			bytes += int64(len(e.Payload) + len(e.Headers))
		}
	}
	return events
}

// bodies reads what was left out of events, until maxBytes is reached. whole says whether all events were kept.
func (s *Store) bodies(ctx context.Context, events []Event, maxBytes int) (kept []Event, whole bool, err error) {
	var ids []string
	place := make(map[string]int)
	for i, e := range events {
		if e.Omitted && e.TooLarge == 0 {
			ids = append(ids, e.ID)
			place[e.ID] = i
		}
	}
	if len(ids) == 0 {
		return events, true, nil
	}
	bytes, last, end := 0, int64(0), len(events)
	body := newBody(nil, nil)
	err = s.run(ctx, "fetch large events", call{sql: fetchBodies, args: []any{ids}, row: func(r pgx.Rows) error {
		var id string
		if err := r.Scan(&id, &body.payload, &body.bytes, &body.headers); err != nil {
			return err
		}
		e := &events[place[id]]
		if bytes >= maxBytes && e.Seq != last {
			end = min(end, place[id]) // the bytes are compressed in the table, and more than they seemed
			return nil
		}
		body.fillLarge(e)
		e.Omitted, last = false, e.Seq
		bytes += len(e.Payload) + len(e.Headers)
		return nil
	}})
	if err != nil {
		return nil, false, err
	}
	for end < len(events) && end > 0 && events[end-1].Seq == events[end].Seq {
		end--
	}
	whole = end == len(events)
	// What is still without its body was deleted meanwhile.
	return slices.DeleteFunc(events[:end], func(e Event) bool { return e.Omitted && e.TooLarge == 0 }), whole, nil
}

// Arrivals looks at what has become visible, in one snapshot: every row with from < seq <= to or a seq in gaps, ordered by seq. Rows that are
// of no other partitions than those named, and that Fetch would bring, come whole, except that large bodies are left out. Of all others, only the
// seq and the transaction come, with Partition -1.
func (s *Store) Arrivals(ctx context.Context, from, to int64, gaps []int64, partitions []int) ([]Event, error) {
	look, rows, err := arrivalsCall(from, to, gaps, partitions)
	if err != nil {
		return nil, err
	}
	if err := s.run(ctx, "look at arrivals", look); err != nil {
		return nil, err
	}
	return rows(), nil
}

// arrivalsCall is the statement of Arrivals; after it, rows returns what it brought.
func arrivalsCall(from, to int64, gaps []int64, partitions []int) (look call, rows func() []Event, err error) {
	set := make([]byte, partition.MaxPartitions/8)
	for _, p := range partitions {
		if p < 0 || p >= partition.MaxPartitions {
			return call{}, nil, fmt.Errorf("look at arrivals: there is no partition %d", p)
		}
		set[p/8] |= 1 << (p % 8)
	}
	if gaps == nil {
		gaps = []int64{}
	}
	var events []Event
	var place Place
	var seq int64
	var xact uint64
	var number, attempts pgtype.Int4
	var whole pgtype.Bool
	var id, stream, topic, key text
	body := newBody(nil, nil)
	columns := []any{&place, &seq, &xact, &id, &stream, &topic, &key, &number, &body.contentType, &body.createdAt, &attempts, &whole, &body.payload, &body.bytes, &body.headers}
	look = call{sql: arrivals, args: []any{from, to, gaps, set, arrivalBody}, row: func(r pgx.Rows) error {
		if err := r.Scan(columns...); err != nil {
			return err
		}
		e := Event{Seq: seq, Xact: xact, Partition: -1}
		if id.valid {
			e.ID, e.Stream, e.Topic, e.Key, e.Partition, e.Attempts, e.Omitted = id.is, stream.is, topic.is, key.is, int(number.Int32), int(attempts.Int32), !whole.Bool
			e.Place = place
			body.fill(&e)
		}
		events = append(events, e)
		return nil
	}}
	return look, func() []Event {
		slices.SortStableFunc(events, func(a, b Event) int { return int(max(min(a.Seq-b.Seq, 1), -1)) })
		return events
	}, nil
}

// Missing lists the numbers in (from, to] that no visible row has, ascending. The list is as long as there are such numbers: ask in spans.
func (s *Store) Missing(ctx context.Context, from, to int64) ([]int64, error) {
	if to <= from {
		return nil, nil
	}
	var numbers []int64
	err := s.run(ctx, "look for missing numbers", call{sql: missing, args: []any{from, to}, row: func(r pgx.Rows) error {
		var before, next int64
		if err := r.Scan(&before, &next); err != nil {
			return err
		}
		for n := before + 1; n < next; n++ {
			numbers = append(numbers, n)
		}
		return nil
	}})
	return numbers, err
}

// Streams lists the streams that the table's rows name, processed or not. The list may have "" in it.
func (s *Store) Streams(ctx context.Context) ([]string, error) {
	var list []string
	err := s.run(ctx, "list streams", call{sql: streams, row: func(r pgx.Rows) error {
		var name string
		if err := r.Scan(&name); err != nil {
			return err
		}
		list = append(list, name)
		return nil
	}})
	return list, err
}
