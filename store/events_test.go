package store

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/pgtest"
)

func TestFetchBringsALanesRowsInOrder(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.open()
	one, other := keyIn(1, 0), keyIn(2, 0)
	a := d.insert("A", one, 3)         // 1-3
	d.insert("B", one, 2)              // 4-5
	d.insert("A", other, 2)            // 6-7
	b := d.insert("A", keyIn(1, 1), 2) // 8-9
	events, more, err := s.Fetch(ctx, Lane{"A", 1}, 0, 100, nil, 100, 1<<20)
	require.NoError(t, err)
	require.False(t, more)
	require.Equal(t, append(a, b...), idsOf(events))
	require.Equal(t, []int64{1, 2, 3, 8, 9}, seqsOf(events))
	e := events[3]
	require.Equal(t, Event{ID: b[0], Seq: 8, Stream: "A", Topic: "event.1", Key: keyIn(1, 1), Partition: 1, Payload: []byte(`{"n": 1}`),
		Place: onePlace(d, b[0]), CreatedAt: e.CreatedAt}, e)
	require.WithinDuration(t, time.Now(), e.CreatedAt, time.Hour)

	events, more, err = s.Fetch(ctx, Lane{"A", 1}, 1, 8, nil, 100, 1<<20)
	require.NoError(t, err)
	require.False(t, more)
	require.Equal(t, []int64{2, 3, 8}, seqsOf(events))

	events, more, err = s.Fetch(ctx, Lane{"A", 1}, 1, 8, nil, 2, 1<<20)
	require.NoError(t, err)
	require.True(t, more)
	require.Equal(t, []int64{2, 3}, seqsOf(events))

	for _, nothing := range []Lane{{"C", 1}, {"A", 3}, {"", 1}} {
		events, more, err = s.Fetch(ctx, nothing, 0, 100, nil, 10, 1<<20)
		require.NoError(t, err)
		require.False(t, more)
		require.Empty(t, events)
	}
}

func TestFetchLeavesOutWhatIsSettled(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.open()
	key := keyIn(1, 0)
	ids := d.insert("A", key, 9)
	lane := Lane{"A", 1}
	epoch := claimAll(t, s, "me", 1)[1]
	event := func(i int) Event {
		return Event{ID: ids[i], Seq: int64(i + 1), Stream: "A", Partition: 1, Key: key, Topic: "t"}
	}
	dead := func(i int) {
		require.NoError(t, s.DeadLetter(ctx, DeadLetter{Event: event(i), Epoch: epoch, Reason: "r", Error: "e", Attempts: 1}))
	}

	_, err := s.Mark(ctx, []Mark{{Lane: lane, Epoch: epoch, IDs: ids[0:1]}})
	require.NoError(t, err)
	dead(1)
	require.NoError(t, s.Park(ctx, epoch, lane, []Event{event(2)}))
	require.NoError(t, s.Attempt(ctx, 1, epoch, ids[3], 2, "try again"))
	dead(4)
	_, err = s.SkipDeadLetter(ctx, ids[4])
	require.NoError(t, err)
	dead(5)
	_, err = s.RetryDeadLetter(ctx, ids[5])
	require.NoError(t, err)
	d.exec("UPDATE outbox_events SET error = 'odd' WHERE id = $1", ids[6])

	want := []string{ids[3], ids[5], ids[6], ids[7], ids[8]}
	require.Equal(t, want, fetchIDs(t, s, lane))
	events, _, err := s.Fetch(ctx, lane, 8, 100, []int64{1, 2, 3, 4, 5, 6}, 100, 1<<20)
	require.NoError(t, err)
	require.Equal(t, []int64{4, 6, 9}, seqsOf(events))
	require.Equal(t, 2, events[0].Attempts)

	events, err = s.Arrivals(ctx, 3, 9, []int64{1, 2, 3}, []int{1})
	require.NoError(t, err)
	require.Len(t, events, 9, "every row is seen")
	var mine []string
	for _, e := range events {
		if e.Partition >= 0 {
			mine = append(mine, e.ID)
		}
	}
	require.Equal(t, want, mine)
}

func TestFetchPutsLateNumbersInTheirPlace(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.open()
	d.insert("A", keyIn(1, 0), 10)
	fetch := func(after, upto int64, late []int64, limit int) ([]int64, bool) {
		events, more, err := s.Fetch(ctx, Lane{"A", 1}, after, upto, late, limit, 1<<20)
		require.NoError(t, err)
		return seqsOf(events), more
	}
	seqs, more := fetch(6, 8, []int64{5, 2, 2, 7, 9, 44}, 100)
	require.Equal(t, []int64{2, 5, 7, 8}, seqs, "late ones at or under after, each once")
	require.False(t, more)
	seqs, more = fetch(6, 8, []int64{2, 5}, 3)
	require.Equal(t, []int64{2, 5, 7}, seqs)
	require.True(t, more)
	seqs, more = fetch(6, 8, []int64{5, 4, 3}, 2)
	require.Equal(t, []int64{3, 4}, seqs)
	require.True(t, more)
	seqs, more = fetch(6, 6, []int64{1000}, 2)
	require.Empty(t, seqs)
	require.False(t, more)
}

// After a sequence was set back, numbers are given twice. A page that ended between two rows with one number would lose the second: the next
// one goes on above it.
func TestFetchNeverSplitsANumber(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.open()
	key := keyIn(1, 0)
	d.insert("A", key, 4)
	d.exec("SELECT setval('outbox_events_seq', 1)")
	d.insert("A", key, 2) // 2 and 3 again
	all := []int64{1, 2, 2, 3, 3, 4}
	for limit := 1; limit <= 7; limit++ {
		for _, maxBytes := range []int{1, 20, 1 << 20} {
			var got []int64
			after, more := int64(0), true
			for more {
				var events []Event
				var err error
				events, more, err = s.Fetch(ctx, Lane{"A", 1}, after, 100, nil, limit, maxBytes)
				require.NoError(t, err)
				got = append(got, seqsOf(events)...)
				if len(events) > 0 {
					after = events[len(events)-1].Seq
				}
			}
			require.Equal(t, all, got, "limit %d, %d bytes", limit, maxBytes)
		}
	}
	d.exec(`UPDATE outbox_events SET payload = to_jsonb(repeat('x', 30000))`)
	events, more, err := s.Fetch(ctx, Lane{"A", 1}, 1, 100, nil, 10, 1)
	require.NoError(t, err)
	require.True(t, more)
	require.Equal(t, []int64{2, 2}, seqsOf(events))
}

func TestFetchIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.open()
	key := keyIn(1, 0)
	// Bodies are not compressed, unless somebody changes that; then they may be many times more than they take in the table.
	d.exec("ALTER TABLE outbox_events ALTER COLUMN payload SET STORAGE EXTENDED")
	d.exec(`INSERT INTO outbox_events (stream, topic, partition_key, payload)
		SELECT 'flat', 't', $1, to_jsonb(repeat('x', 500000)) FROM generate_series(1, 6)`, key)
	d.exec(`INSERT INTO outbox_events (stream, topic, partition_key, payload_bytes)
		SELECT 'full', 't', $1, (SELECT string_agg(sha512((n || '-' || m)::bytea), '') FROM generate_series(1, 1000) m)
		FROM generate_series(1, 6) n`, key)
	d.exec(`INSERT INTO outbox_events (stream, topic, partition_key, payload)
		SELECT 'small', 't', $1, to_jsonb(repeat('x', 1000)) FROM generate_series(1, 6)`, key)
	for _, c := range []struct {
		stream         string
		size, maxBytes int
		want           int
	}{
		{"flat", 500002, 1, 1}, {"flat", 500002, 500003, 2}, {"flat", 500002, 1200000, 3}, {"flat", 500002, 1 << 30, 6},
		{"full", 64000, 1, 1}, {"full", 64000, 64000, 1}, {"full", 64000, 65000, 2}, {"full", 64000, 1 << 30, 6},
		{"small", 1002, 1, 1}, {"small", 1002, 2004, 2}, {"small", 1002, 2005, 3}, {"small", 1002, 1 << 30, 6},
	} {
		events, more, err := s.Fetch(ctx, Lane{c.stream, 1}, 0, 100, nil, 50, c.maxBytes)
		require.NoError(t, err)
		require.Equal(t, c.want, len(events), "%+v", c)
		require.Equal(t, c.want < 6, more, "%+v", c)
		for _, e := range events {
			require.Equal(t, c.size, len(e.Payload), "%+v", c)
			require.False(t, e.Omitted)
			require.Equal(t, c.stream == "full", e.Binary)
		}
	}
}

func TestEventsKeepWhatTheirRowsHave(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.open()
	key := keyIn(1, 0)
	d.exec(`INSERT INTO outbox_events (id, stream, topic, partition_key, payload, payload_bytes, content_type, headers, created_at) VALUES
		('json', 'A', 't', $1, '{"n": 12345678901234567890.10, "a": 1e400, "s": "\u00e9\ud83d\ude00"}', NULL, NULL, '{"trace_id": "x", "n": 1.50}', '2024-02-03 04:05:06.789Z'),
		('null', 'A', 't', $1, 'null', NULL, NULL, NULL, NULL),
		('none', 'A', 't', $1, NULL, NULL, 'text/plain', NULL, 'infinity'),
		('bytes', 'A', 't', $1, NULL, '\x00ff0a', 'application/protobuf', NULL, '-infinity'),
		('empty', 'A', 't', $1, NULL, '', NULL, NULL, '20231-01-01'),
		('old', 'A', 't', $1, '1', NULL, NULL, NULL, '0300-01-01 BC')`, key)
	d.exec("UPDATE outbox_events SET created_at = NULL WHERE id = 'null'")
	want := []Event{
		{ID: "json", Payload: []byte(`{"a": 1` + strings.Repeat("0", 400) + `, "n": 12345678901234567890.10, "s": "é😀"}`),
			Headers: []byte(`{"n": 1.50, "trace_id": "x"}`), CreatedAt: time.Date(2024, 2, 3, 4, 5, 6, 789e6, time.UTC)},
		{ID: "null", Payload: []byte("null")},
		{ID: "none", ContentType: "text/plain"},
		{ID: "bytes", Payload: []byte{0, 0xff, 0x0a}, Binary: true, ContentType: "application/protobuf"},
		{ID: "empty", Payload: []byte{}, Binary: true},
		{ID: "old", Payload: []byte("1")},
	}
	for i := range want {
		want[i].Seq, want[i].Stream, want[i].Topic, want[i].Key, want[i].Partition = int64(i+1), "A", "t", key, 1
		want[i].Place = onePlace(d, want[i].ID)
	}
	bouncer := pgtest.StartPgbouncer(t, d.url)
	for name, s := range map[string]*Store{"direct": s, "pooler": openURL(t, bouncer)} {
		events, _, err := s.Fetch(ctx, Lane{"A", 1}, 0, 100, nil, 100, 1<<20)
		require.NoError(t, err)
		require.Equal(t, want, events, name)
		events, err = s.Arrivals(ctx, 0, 100, nil, []int{1})
		require.NoError(t, err)
		for i := range events {
			require.Equal(t, one[uint64](d, "SELECT xact FROM outbox_events WHERE id = $1", events[i].ID), events[i].Xact)
			events[i].Xact = 0
		}
		require.Equal(t, want, events, name)
	}
}

func onePlace(d *database, id string) Place {
	return one[Place](d, "SELECT ctid FROM outbox_events WHERE id = $1", id)
}

func TestArrivalsSeesEveryRow(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.open()
	d.insert("A", keyIn(1, 0), 2) // 1-2
	d.insert("B", keyIn(2, 0), 2) // 3-4
	d.insert("", keyIn(15, 0), 2) // 5-6
	tx := begin(t, pgtest.Connect(t, d.url))
	insertBy(t, tx, "A", keyIn(1, 0), 2) // 7-8, not visible
	d.insert("A", keyIn(1, 0), 1)        // 9
	look := func(from, to int64, gaps []int64, partitions ...int) (list []Event) {
		events, err := s.Arrivals(ctx, from, to, gaps, partitions)
		require.NoError(t, err)
		for _, e := range events {
			list = append(list, Event{Seq: e.Seq, Partition: e.Partition, Stream: e.Stream})
		}
		return list
	}
	other := func(seq int64) Event { return Event{Seq: seq, Partition: -1} }
	require.Equal(t, []Event{{Seq: 1, Partition: 1, Stream: "A"}, {Seq: 2, Partition: 1, Stream: "A"}, other(3), other(4),
		{Seq: 5, Partition: 15}, {Seq: 6, Partition: 15}, {Seq: 9, Partition: 1, Stream: "A"}}, look(0, 9, nil, 1, 15))
	require.Equal(t, []Event{other(4), other(5)}, look(3, 5, nil))
	require.Equal(t, []Event{other(3), {Seq: 9, Partition: 1, Stream: "A"}}, look(8, 9, []int64{3, 7, 8}, 1))
	require.Empty(t, look(9, 9, []int64{7, 8}, 1))
	require.NoError(t, tx.Commit(ctx))
	require.Equal(t, []Event{{Seq: 7, Partition: 1, Stream: "A"}, {Seq: 8, Partition: 1, Stream: "A"}}, look(9, 9, []int64{7, 8}, 1))
	_, err := s.Arrivals(ctx, 0, 1, nil, []int{4096})
	require.Error(t, err)
}

func TestArrivalsLeavesLargeBodiesOut(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.open()
	key := keyIn(1, 0)
	d.exec(`INSERT INTO outbox_events (stream, topic, partition_key, payload, headers) VALUES ('A', 't', $1, to_jsonb(repeat('x', 1500)), '{"a": "b"}'),
		('A', 't', $1, to_jsonb(repeat('x', 1000000)), '{"a": "b"}')`, key)
	events, err := s.Arrivals(ctx, 0, 100, nil, []int{1})
	require.NoError(t, err)
	require.Len(t, events[0].Payload, 1502)
	require.NotEmpty(t, events[0].Headers)
	require.False(t, events[0].Omitted)
	require.Nil(t, events[1].Payload)
	require.Nil(t, events[1].Headers)
	require.True(t, events[1].Omitted)
	require.Equal(t, key, events[1].Key)
}

func TestBodiesThatNobodyTakesAreNotRead(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	largest := int64(100_000)
	s := d.open(func(c *Config) { c.LargestBody = func() int64 { return largest } })
	key := keyIn(1, 0)
	d.exec(`INSERT INTO outbox_events (stream, topic, partition_key, payload, payload_bytes) VALUES
		('A', 'small', $1, '1', NULL),
		('A', 'bytes', $1, NULL, convert_to(repeat('x', 100001), 'UTF8')),
		('A', 'just', $1, NULL, convert_to(repeat('x', 100000), 'UTF8')),
		('A', 'json', $1, to_jsonb(repeat('x', 800100)), NULL),
		('A', 'maybe', $1, to_jsonb(repeat('x', 700000)), NULL),
		('A', 'last', $1, '2', NULL)`, key)
	fetch := func() map[string]Event {
		events, more, err := s.Fetch(ctx, Lane{"A", 1}, 0, 100, nil, 100, 10_000_000)
		require.NoError(t, err)
		require.False(t, more)
		require.Len(t, events, 6)
		topics := map[string]Event{}
		for _, e := range events {
			topics[e.Topic] = e
		}
		return topics
	}
	events := fetch()
	require.EqualValues(t, 100_001, events["bytes"].TooLarge)
	require.Greater(t, events["json"].TooLarge, largest)
	for _, topic := range []string{"bytes", "json"} {
		require.True(t, events[topic].Omitted)
		require.Empty(t, events[topic].Payload)
	}
	require.Len(t, events["just"].Payload, 100_000)
	require.Len(t, events["maybe"].Payload, 700_002)
	require.Equal(t, "2", string(events["last"].Payload))

	largest = 1_000_000
	require.Len(t, fetch()["json"].Payload, 800_102)
}

func TestMissingFindsTheNumbersWithoutARow(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.open()
	d.insert("A", "k", 10)
	d.exec("DELETE FROM outbox_events WHERE seq IN (1, 4, 5, 10)")
	for _, c := range []struct {
		from, to int64
		want     []int64
	}{
		{0, 10, []int64{1, 4, 5, 10}}, {0, 12, []int64{1, 4, 5, 10, 11, 12}}, {1, 9, []int64{4, 5}}, {3, 4, []int64{4}}, {4, 5, []int64{5}},
		{5, 9, nil}, {20, 22, []int64{21, 22}}, {7, 7, nil}, {9, 3, nil}, {0, 1, []int64{1}},
	} {
		got, err := s.Missing(ctx, c.from, c.to)
		require.NoError(t, err)
		require.Equal(t, c.want, got, "(%d, %d]", c.from, c.to)
	}
}

func TestStreamsListsEachOnce(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.open()
	list, err := s.Streams(ctx)
	require.NoError(t, err)
	require.Empty(t, list)
	for _, stream := range []string{"B", "A", "", "b", "B", "Ä", "STREAM_A"} {
		d.insert(stream, "k", 3)
	}
	d.exec("UPDATE outbox_events SET processed = true")
	list, err = s.Streams(ctx)
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"B", "A", "", "b", "Ä", "STREAM_A"}, list)
}
