package stress_test

import (
	"context"
	"flag"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/pooltest"
)

// hotEvents is how many events one key has in the isolation test; 50000 is the whole of it.
var hotEvents = flag.Int("hot-events", 5000, "how many events one key has in the isolation test")

const (
	isolated = 16 // partitions; what disturbs is in partition 0, the others' events are not
	// leastRatio is how much of their rate the others must keep. It leaves room for a machine that has other things to do.
	leastRatio = 0.5
	window     = 2 * time.Second
	othersTick = 25 * time.Millisecond
	othersEach = 10 // events a tick
)

// others produce events of many keys, none of them in partition 0, at a steady pace until the end.
type others struct {
	*pooltest.Env
	keys   []string
	worker *pooltest.Process
}

func (o *others) produce(ctx context.Context, stream string) error {
	for n := 0; ; n++ {
		key := o.keys[n%len(o.keys)]
		if _, err := o.DB.Exec(ctx, pooltest.InsertMany, stream, "a.other", key, othersEach); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(othersTick):
		}
	}
}

// rate is how many of the others' events are marked in a second, while producers go on for a window.
func (o *others) rate() float64 {
	o.T.Helper()
	const marked = "SELECT count(*) FROM outbox_events WHERE topic = 'a.other' AND processed"
	ctx, cancel := context.WithTimeout(o.T.Context(), window)
	defer cancel()
	before, began := o.Count(marked), time.Now()
	var producing sync.WaitGroup
	producing.Go(func() { _ = o.produce(ctx, "A") }) // ends by its context
	producing.Wait()
	return float64(o.Count(marked)-before) / time.Since(began).Seconds()
}

// TestOthersKeepTheirRate measures the rate of some keys while nothing else goes on, and again while something is wrong in another lane of their
// stream, or in another stream.
func TestOthersKeepTheirRate(t *testing.T) {
	e := pooltest.New(t, isolated)
	e.Stream("A", []string{"a.>"})
	o := &others{Env: e}
	for p := 1; p < isolated; p++ {
		o.keys = append(o.keys, keyOf(p, isolated))
	}
	hot := keyOf(0, isolated)
	o.worker = e.Process(program, "w1")
	e.Insert("A", "a.first", "k", 100)
	e.Drained()

	for _, c := range []struct {
		name    string
		disturb func(t *testing.T) (still func() bool, mend func())
	}{
		{"a stream is down", func(t *testing.T) (func() bool, func()) {
			for p := range isolated {
				e.Insert("GONE", "gone.x", keyOf(p, isolated), 100)
			}
			return func() bool { return e.Count(waiting, "GONE", "%") == 100*isolated }, func() { e.Stream("GONE", []string{"gone.>"}) }
		}},
		{"a key has very many events", func(t *testing.T) (func() bool, func()) {
			e.Insert("A", "a.hot", hot, *hotEvents)
			return func() bool { return true }, func() {}
		}},
		{"a lane's rows are locked", func(t *testing.T) (func() bool, func()) {
			return o.lock(t, hot)
		}},
		{"a lane's events are large", func(t *testing.T) (func() bool, func()) {
			e.Exec(`INSERT INTO outbox_events (stream, topic, partition_key, payload) SELECT 'A', 'a.large', $1, to_jsonb(repeat('x', 900000)) FROM generate_series(1, 100)`, hot)
			return func() bool { return true }, func() {}
		}},
		{"a key is poisoned", func(t *testing.T) (func() bool, func()) {
			e.Exec(`INSERT INTO outbox_events (stream, topic, partition_key, payload, headers)
				SELECT 'A', 'a.poison', $1, '{}', CASE WHEN n % 2 = 0 THEN '{"Nats-Rollup": "all"}'::jsonb END FROM generate_series(1, 1000) n`, hot)
			return func() bool { return true }, func() {}
		}},
	} {
		calm := o.rate()
		still, mend := c.disturb(t)
		disturbed := o.rate()
		require.True(t, still(), "%s: it was over too soon", c.name)
		mend()
		e.Drained()
		t.Logf("%s: the others had %.0f events/s and kept %.0f, a ratio of %.2f", c.name, calm, disturbed, disturbed/calm)
		require.GreaterOrEqual(t, disturbed/calm, leastRatio, c.name)
	}
	e.Check("A", "GONE")
}

const waiting = "SELECT count(*) FROM outbox_events WHERE stream = $1 AND topic LIKE $2 AND NOT processed"

// lock inserts events of a key and locks their rows before a worker sees them, so that none of them can be marked.
func (o *others) lock(t *testing.T, key string) (still func() bool, unlock func()) {
	t.Helper()
	ctx := t.Context()
	o.worker.Pause()
	o.Insert("A", "a.locked", key, 400)
	tx, err := o.DB.Begin(ctx)
	require.NoError(t, err)
	tag, err := tx.Exec(ctx, "SELECT FROM outbox_events WHERE topic = 'a.locked' AND NOT processed FOR UPDATE")
	require.NoError(t, err)
	require.EqualValues(t, 400, tag.RowsAffected())
	o.worker.Resume()
	return func() bool { return o.Count(waiting, "A", "a.locked") == 400 }, func() { require.NoError(t, tx.Rollback(ctx)) }
}
