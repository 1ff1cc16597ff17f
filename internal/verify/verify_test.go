package verify_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/history"
	"github.com/outlane/outlane/internal/natstest"
	"github.com/outlane/outlane/internal/pgtest"
	"github.com/outlane/outlane/internal/verify"
)

func TestCleanTable(t *testing.T) {
	f := newFixture(t)
	ids := f.many(20)
	f.deliver(ids[:15]...)
	var seen []string
	f.opts.OnMessage = func(m history.Message) { seen = append(seen, m.ID) }
	r := f.run()
	require.True(t, r.Clean())
	require.EqualValues(t, 15, r.Checked)
	require.EqualValues(t, 15, r.Stored)
	require.EqualValues(t, 5, r.Waiting)
	require.Empty(t, r.First)
	require.Empty(t, r.Notes)
	require.Equal(t, []verify.StreamReport{{Name: "S", FirstSeq: 1, LastSeq: 15, Messages: 15}}, r.Streams)
	require.Equal(t, ids[:15], seen)
}

func TestEmptyTable(t *testing.T) {
	f := newFixture(t)
	r := f.run()
	require.True(t, r.Clean())
	require.Zero(t, r.Checked)
	text, err := json.Marshal(r)
	require.NoError(t, err)
	for _, field := range []string{"checked", "lost", "doubled", "out_of_order", "unmarked"} {
		require.Contains(t, string(text), `"`+field+`":0`)
	}
	require.NotContains(t, string(text), "null")
}

func TestLost(t *testing.T) {
	f := newFixture(t)
	ids := f.many(6)
	f.deliver(ids[:5]...)
	f.mark(ids[5])
	stream, err := f.js.Stream(f.ctx, "S")
	require.NoError(t, err)
	require.NoError(t, stream.DeleteMsg(f.ctx, 3))
	r := f.run()
	require.False(t, r.Clean())
	require.EqualValues(t, 2, r.Lost)
	require.EqualValues(t, 6, r.Checked)
	require.Equal(t, []string{"e3", "e6"}, []string{r.First[0].ID, r.First[1].ID})
	require.Len(t, r.Notes, 1, "a message is missing from the middle")

	require.NoError(t, stream.DeleteMsg(f.ctx, 5))
	require.EqualValues(t, 3, f.run().Lost, "the end of the stream is deleted")
}

func TestDoubled(t *testing.T) {
	f := newFixture(t, jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}, Duplicates: 100 * time.Millisecond})
	f.deliver(f.many(2)...)
	require.Eventually(t, func() bool {
		ack, err := f.js.PublishMsg(f.ctx, f.message("e1"))
		require.NoError(t, err)
		return !ack.Duplicate
	}, natstest.Ceiling, 50*time.Millisecond)
	r := f.run()
	require.False(t, r.Clean())
	require.EqualValues(t, 1, r.Doubled)
	require.Zero(t, r.OutOfOrder)
	require.Equal(t, "e1", r.First[0].ID)
	require.EqualValues(t, 3, r.First[0].StreamSeq)
}

func TestOutOfOrder(t *testing.T) {
	f := newFixture(t)
	f.many(3)
	f.deliver("e2", "e1", "e3")
	r := f.run()
	require.False(t, r.Clean())
	require.EqualValues(t, 1, r.OutOfOrder)
	require.EqualValues(t, 1, r.OutOfOrderKey)
	require.Equal(t, "e1", r.First[0].ID)

	f.insert("slow", "k")
	f.insert("quick", "k")
	f.exec("UPDATE outbox_events SET xact_oldest = (SELECT xact FROM outbox_events WHERE id = 'slow') WHERE id = 'quick'")
	f.deliver("quick", "slow")
	require.EqualValues(t, 1, f.run().OutOfOrder)
	f.opts.Strict = func(stream string) bool { return stream == "S" }
	require.EqualValues(t, 2, f.run().OutOfOrder, "on a route in order of sequence they have")
}

func TestUnmarked(t *testing.T) {
	f := newFixture(t)
	f.publish(f.many(2)...)
	f.mark("e1")
	r := f.run()
	require.False(t, r.Clean())
	require.EqualValues(t, 1, r.Unmarked)
	require.EqualValues(t, 2, r.Checked)
	require.Equal(t, "e2", r.First[0].ID)
}

func TestMarkUnderWay(t *testing.T) {
	f := newFixture(t)
	f.publish(f.many(2)...)
	f.mark("e1")
	f.opts.Settle = natstest.Ceiling
	other := pgtest.Connect(t, f.db.Config().ConnString())
	marked := make(chan error, 1)
	f.opts.OnMessage = func(m history.Message) {
		if m.ID == "e2" {
			go func() {
				_, err := other.Exec(f.ctx, "UPDATE outbox_events SET processed = true WHERE id = 'e2'")
				marked <- err
			}()
		}
	}
	r := f.run()
	require.NoError(t, <-marked)
	require.True(t, r.Clean())
}

func TestEventsThatAppearDuringTheCheck(t *testing.T) {
	f := newFixture(t)
	f.deliver(f.many(2)...)
	other := pgtest.Connect(t, f.db.Config().ConnString())
	tx, err := other.Begin(f.ctx)
	require.NoError(t, err)
	_, err = tx.Exec(f.ctx, "INSERT INTO outbox_events (id, stream, topic, partition_key) VALUES ('slow', 'S', 's.x', 'k')")
	require.NoError(t, err)
	f.insert("e3", "k")
	f.on("reading the table", func() {
		require.NoError(t, tx.Commit(f.ctx))
		f.insert("new", "k")
		f.publish("e3", "slow", "new")
		f.mark("e3")
	})
	r := f.run()
	require.True(t, r.Clean(), "%+v", r)
	require.EqualValues(t, 2, r.InFlight)
	require.EqualValues(t, 3, r.Checked)
	require.Zero(t, r.NoRow)
}

func TestDecisionDuringTheCheck(t *testing.T) {
	f := newFixture(t)
	f.many(2)
	f.on("reading the table", func() {
		f.deadLetter("e1", false, "retried")
		f.deliver("e2", "e1")
	})
	r := f.run()
	require.True(t, r.Clean(), "%+v", r)
}

// deadLetter makes an entry of the dead-letter list; resolution is empty while it waits for a decision.
func (f *fixture) deadLetter(id string, blocks bool, resolution string) {
	f.t.Helper()
	f.exec(`INSERT INTO outbox_dead_letters (event_id, seq, stream, partition, partition_key, topic, reason, error, attempts, blocks, resolved_at, resolution)
		SELECT id, seq, stream, partition, partition_key, topic, 'too_large', 'too large', 5, $2, CASE WHEN $3 <> '' THEN now() END, nullif($3, '')
		FROM outbox_events WHERE id = $1`, id, blocks, resolution)
}

func (f *fixture) park(released bool, ids ...string) {
	f.t.Helper()
	f.exec(`INSERT INTO outbox_parked_events (event_id, seq, stream, partition, partition_key, released_at)
		SELECT id, seq, stream, partition, partition_key, CASE WHEN $2 THEN now() END FROM outbox_events WHERE id = ANY ($1)`, ids, released)
}

func TestDeadLettersAndParkedEvents(t *testing.T) {
	f := newFixture(t)
	f.many(8)
	f.deadLetter("e1", false, "")
	f.deadLetter("e2", false, "skipped")
	f.deadLetter("e3", true, "")
	f.park(false, "e4")
	f.deadLetter("e5", false, "retried")
	f.deliver("e6", "e7", "e8", "e5")
	r := f.run()
	require.True(t, r.Clean(), "%+v", r)
	require.EqualValues(t, 2, r.DeadLetters)
	require.EqualValues(t, 1, r.Skipped)
	require.EqualValues(t, 1, r.Parked)
	require.EqualValues(t, 8, r.Checked)
}

func TestReleasedEventsAreInOrder(t *testing.T) {
	f := newFixture(t)
	f.many(4)
	f.exec("BEGIN")
	f.deadLetter("e1", true, "retried")
	f.park(true, "e2", "e3")
	f.exec("COMMIT")
	f.deliver("e1", "e3", "e2", "e4")
	r := f.run()
	require.EqualValues(t, 1, r.OutOfOrder)
	require.Equal(t, "e2", r.First[0].ID)
}

func TestMessagesWithoutRow(t *testing.T) {
	f := newFixture(t)
	f.deliver(f.many(3)...)
	f.exec("DELETE FROM outbox_events WHERE id = 'e2'")
	r := f.run()
	require.True(t, r.Clean())
	require.EqualValues(t, 1, r.NoRow)
	require.Len(t, r.Notes, 1)
	require.Empty(t, r.First, "that is no offence")
	f.opts.Complete = true
	r = f.run()
	require.False(t, r.Clean())
	require.Empty(t, r.Notes)
	require.Equal(t, history.Phantom, r.First[0].Kind)
	require.Equal(t, "e2", r.First[0].ID)
}

func TestForeignMessages(t *testing.T) {
	f := newFixture(t,
		jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}},
		jetstream.StreamConfig{Name: "M", Subjects: []string{"m.>"}, Sources: []*jetstream.StreamSource{{Name: "S"}}})
	f.insert("e1", "k")
	f.insertTo("M", "m.x", "e2", "k")
	f.deliver("e1", "e2")
	_, err := f.js.Publish(f.ctx, "s.x", []byte("from somebody else"))
	require.NoError(t, err)
	m, err := f.js.Stream(f.ctx, "M")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		info, err := m.Info(f.ctx)
		require.NoError(t, err)
		return info.State.Msgs == 3
	}, natstest.Ceiling, 10*time.Millisecond)
	r := f.run()
	require.True(t, r.Clean())
	require.EqualValues(t, 2, r.Checked)
	require.EqualValues(t, 1, r.Streams[0].Messages)
	require.EqualValues(t, 2, r.Streams[0].Foreign, "M has a copy of e1")
	require.EqualValues(t, 1, r.Streams[1].Foreign)
}

func TestEventsWithoutStream(t *testing.T) {
	f := newFixture(t)
	f.insertTo("", "s.a", "e1", "k")
	f.insertTo("", "s.b", "e2", "k")
	f.insertTo("", "nowhere", "e3", "k")
	f.deliver("e2", "e1")
	f.mark("e3")
	r := f.run()
	require.EqualValues(t, 3, r.Checked)
	require.EqualValues(t, 1, r.OutOfOrder)
	require.EqualValues(t, 1, r.Lost)
}

func TestChosenStreamsAndSeq(t *testing.T) {
	f := newFixture(t, jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}}, jetstream.StreamConfig{Name: "T", Subjects: []string{"t.>"}})
	f.many(4)
	f.insertTo("T", "t.x", "t1", "k")
	f.mark("e1", "t1")
	f.deliver("e2", "e3", "e4")
	require.EqualValues(t, 2, f.run().Lost)
	f.opts.Streams = []string{"S"}
	r := f.run()
	require.EqualValues(t, 1, r.Lost)
	require.EqualValues(t, 4, r.Checked)
	require.Len(t, r.Streams, 1)
	f.opts.After = 2
	r = f.run()
	require.True(t, r.Clean())
	require.EqualValues(t, 2, r.Checked)
	require.EqualValues(t, 2, r.Streams[0].Messages+r.NoRow)
}

func TestMissingStream(t *testing.T) {
	f := newFixture(t)
	f.insertTo("GONE", "g.x", "e1", "k")
	f.insertTo("GONE", "g.x", "e2", "k")
	f.mark("e1")
	r := f.run()
	require.EqualValues(t, 1, r.Lost)
	require.EqualValues(t, 1, r.Waiting)
	require.True(t, r.Streams[0].Missing)
	require.Contains(t, r.Notes[0], "GONE")
}

func TestStreamsThatForget(t *testing.T) {
	subjects := []string{"s.>"}
	for name, c := range map[string]struct {
		cfg           jetstream.StreamConfig
		then          func(*fixture, jetstream.Stream)
		lost, expired int64
		stored        int64
		note          string
	}{
		"by number":       {cfg: jetstream.StreamConfig{MaxMsgs: 4}, expired: 5, lost: 1, stored: 4, note: "dropped its messages before 6"},
		"by subject":      {cfg: jetstream.StreamConfig{MaxMsgsPerSubject: 4}, expired: 6, stored: 4, note: "keeps 4 messages of a subject"},
		"purged by hand":  {then: purge, lost: 10, note: "has no limits, yet it begins at message 10"},
		"purged, limited": {cfg: jetstream.StreamConfig{MaxAge: time.Hour}, then: purge, expired: 10, note: "dropped its messages before 10"},
		"work queue": {
			cfg: jetstream.StreamConfig{Retention: jetstream.WorkQueuePolicy}, then: work, expired: 2, stored: 8, note: "what its consumers have acknowledged",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.cfg.Name, c.cfg.Subjects = "S", subjects
			f := newFixture(t, c.cfg)
			ids := f.many(10)
			f.publish(ids[:7]...)
			f.publish(ids[8:]...) // e8 is lost
			f.mark(ids...)
			if c.then != nil {
				s, err := f.js.Stream(f.ctx, "S")
				require.NoError(t, err)
				c.then(f, s)
			}
			r := f.run()
			require.Equal(t, c.lost, r.Lost)
			require.Equal(t, c.expired, r.Expired)
			require.Equal(t, c.stored, r.Stored)
			require.Equal(t, 10-c.expired, r.Checked)
			require.Contains(t, strings.Join(r.Notes, "\n"), c.note)
		})
	}
}

func purge(f *fixture, s jetstream.Stream) { require.NoError(f.t, s.Purge(f.ctx)) }

// work has a consumer take the first message of a work queue, while it keeps the right to the others.
func work(f *fixture, s jetstream.Stream) {
	c, err := s.CreateConsumer(f.ctx, jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckExplicitPolicy})
	require.NoError(f.t, err)
	m, err := c.Next()
	require.NoError(f.t, err)
	require.NoError(f.t, m.DoubleAck(f.ctx))
}

// bulk inserts events, as if by one transaction after the other, and stores them.
func (f *fixture) bulk(n int) {
	f.t.Helper()
	f.exec("INSERT INTO outbox_events (id, stream, topic, partition_key) SELECT 'e' || i, 'S', 's.x', 'k' || i % 50 FROM generate_series(1, $1) i", n)
	f.exec("UPDATE outbox_events SET xact = seq::text::xid8, xact_oldest = seq::text::xid8")
	rows, err := f.db.Query(f.ctx, "SELECT id, seq::text, partition::text FROM outbox_events e ORDER BY e.seq")
	require.NoError(f.t, err)
	for i := 1; rows.Next(); i++ {
		if i%1000 == 0 {
			<-f.js.PublishAsyncComplete()
		}
		var id, seq, part string
		require.NoError(f.t, rows.Scan(&id, &seq, &part))
		msg := nats.NewMsg("s.x")
		msg.Header = nats.Header{nats.MsgIdHdr: {id}, "Outlane-Seq": {seq}, "Outlane-Partition": {part}}
		_, err := f.js.PublishMsgAsync(msg)
		require.NoError(f.t, err)
	}
	require.NoError(f.t, rows.Err())
	<-f.js.PublishAsyncComplete()
}

func TestStreamThatForgetsWhileItIsRead(t *testing.T) {
	f := newFixture(t, jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}, MaxAge: time.Hour})
	const n = 12_000 // more than are read ahead
	f.bulk(n)
	f.exec("UPDATE outbox_events SET processed = true")
	s, err := f.js.Stream(f.ctx, "S")
	require.NoError(t, err)
	f.opts.OnMessage = func(m history.Message) {
		if m.StreamSeq == 1 {
			require.NoError(t, s.Purge(f.ctx, jetstream.WithPurgeSequence(n-10)))
		}
	}
	r := f.run()
	require.True(t, r.Clean())
	require.NotZero(t, r.Expired)
	require.EqualValues(t, n, r.Expired+r.Stored)
	require.Contains(t, strings.Join(r.Notes, "\n"), "faster than they were read")
}

func TestManyEvents(t *testing.T) {
	f := newFixture(t)
	const n = 25_000
	f.bulk(n)
	f.exec("UPDATE outbox_events SET processed = seq % 2 = 0")
	var last []verify.Progress
	f.opts.Progress = func(p verify.Progress) {
		require.LessOrEqual(t, p.Done, p.Total)
		last = append(last, p)
	}
	r := f.run()
	require.EqualValues(t, n, r.Checked)
	require.EqualValues(t, n/2, r.Unmarked)
	require.Zero(t, r.Lost+r.Doubled+r.OutOfOrder)
	require.Len(t, r.First, 20)
	require.True(t, slices.ContainsFunc(last, func(p verify.Progress) bool { return p.Step == "reading S" && p.Done == p.Total }))
}

func TestHolesInTheNumbers(t *testing.T) {
	f := newFixture(t)
	f.many(4)
	f.exec("UPDATE outbox_events SET seq = seq * 1000000000000 WHERE id IN ('e3', 'e4')")
	f.deliver("e1", "e2", "e3")
	r := f.run()
	require.EqualValues(t, 3, r.Checked)
	require.EqualValues(t, 1, r.Waiting)
	require.True(t, r.Clean())
}

func TestServersThatAreAway(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	f := newFixtureOn(t, server)
	f.deliver(f.many(1)...)
	server.Stop()
	require.Eventually(t, func() bool { return !f.nc.IsConnected() }, natstest.Ceiling, 5*time.Millisecond)
	_, err := verify.Run(f.ctx, f.opts)
	require.ErrorContains(t, err, "not connected")
	server.Restart(t)
	require.Eventually(t, f.nc.IsConnected, natstest.Ceiling, 5*time.Millisecond)
	f.exec("ALTER TABLE outbox_events RENAME TO gone")
	_, err = verify.Run(f.ctx, f.opts)
	require.Error(t, err)
}

func TestReportForPeople(t *testing.T) {
	f := newFixture(t)
	f.many(3)
	f.deliver("e2", "e1")
	f.mark("e3")
	var text strings.Builder
	require.NoError(t, f.run().WriteText(&text))
	require.Regexp(t, `(?m)^checked +3 `, text.String())
	require.Regexp(t, `(?m)^lost +1 `, text.String())
	require.Regexp(t, `(?m)^doubled +0 `, text.String())
	require.Regexp(t, `(?m)^out_of_order +"e1" +1 +S +\d +2 +stored after`, text.String())
	require.NotContains(t, text.String(), "parked")
}

func TestProgressLines(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	show := verify.Lines(&text)
	for _, p := range []verify.Progress{{"a", 1, 10}, {"a", 10, 10}, {"b", 1, 3}, {"b", 3, 3}} {
		show(p)
	}
	require.Equal(t, "a: 10 of 10 (100%)\nb: 3 of 3 (100%)\n", text.String())
}

func TestProgressBar(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	show, done := verify.Bar(&text, 80)
	show(verify.Progress{Step: "a", Done: 5, Total: 10})
	show(verify.Progress{Step: "a", Done: 10, Total: 10})
	done()
	require.Contains(t, text.String(), "50% 5")
	require.Contains(t, text.String(), "100% 10")
	require.True(t, strings.HasSuffix(text.String(), "\r\x1b[K"))
}
