package verify_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/verify"
)

func TestRowsThatTheirCursorHasPassed(t *testing.T) {
	f := newFixture(t)
	f.many(7)
	f.deliver("e1", "e3")
	f.publish("e4") // on the way to its mark, while nobody marks
	f.deadLetter("e5", true, "")
	f.park(false, "e6")
	f.exec("INSERT INTO outlane_lanes (stream, partition, cursor) SELECT stream, partition, 6 FROM outbox_events WHERE id = 'e1'")
	r := f.run()
	require.EqualValues(t, 1, r.Lost)
	require.EqualValues(t, 1, r.Unmarked)
	require.EqualValues(t, 1, r.Waiting)
	require.EqualValues(t, 6, r.Checked)
	require.Equal(t, "e2", r.First[len(r.First)-1].ID)
	require.Contains(t, r.First[len(r.First)-1].Reason, "no worker reads it again")

	f.exec("SELECT setval('outbox_events_seq', 5)")
	require.Zero(t, f.run().Lost, "the sequence went backwards: the cursors go to 0")
	f.exec("SELECT setval('outbox_events_seq', 7)")
	require.EqualValues(t, 1, f.run().Lost)
	f.exec("UPDATE outlane_config SET sequence_file = 1")
	require.Zero(t, f.run().Lost, "the cursors count by another sequence, and go to 0")
}

func TestDecisionThatSetsTheCursorBackDuringTheCheck(t *testing.T) {
	f := newFixture(t)
	f.many(2)
	f.deadLetter("e1", false, "")
	f.deliver("e2")
	f.exec("INSERT INTO outlane_lanes (stream, partition, cursor) SELECT stream, partition, 2 FROM outbox_events WHERE id = 'e1'")
	f.exec("UPDATE outbox_dead_letters SET resolved_at = now(), resolution = 'retried'")
	require.EqualValues(t, 1, f.run().Lost, "retried, but its cursor was forgotten")
	f.on("reading the table", func() { f.exec("UPDATE outlane_lanes SET cursor = 0") })
	require.True(t, f.run().Clean())
}

func TestStreamThatNobodyKnows(t *testing.T) {
	f := newFixture(t)
	f.insertTo("GONE", "g.x", "e1", "k")
	f.opts.Streams = []string{"GONE"}
	require.EqualValues(t, 1, f.run().Waiting)
	f.opts.Streams = []string{"S", "GNOE"}
	_, err := verify.Run(f.ctx, f.opts)
	require.ErrorContains(t, err, `"GNOE": there is no such stream`)
}

func TestIdsThatAHeaderCannotHold(t *testing.T) {
	f := newFixture(t)
	ids := []string{"", " ", "a\nb", "100%", "a%0Ab", "ü"}
	for _, id := range ids {
		f.insert(id, "k")
	}
	f.deliver(ids...)
	r := f.run()
	require.True(t, r.Clean(), "%+v", r)
	require.EqualValues(t, len(ids), r.Stored)
	require.Zero(t, r.NoRow)
}
