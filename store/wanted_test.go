package store

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/pgtest"
	"github.com/outlane/outlane/migrations"
)

// docs/scaling.md has these cases as its worked examples.
func TestWorkersWanted(t *testing.T) {
	t.Parallel()
	const fill = `INSERT INTO outbox_events (stream, topic, partition_key, payload) SELECT '%s', 't', '%s', '{}' FROM generate_series(1, %d) n`
	add := func(d *database, stream string, partition, n int) {
		d.exec(fmt.Sprintf(fill, stream, keyIn(partition, 0), n))
	}
	state := func(d *database, stream string, partition int, member string) {
		d.exec(`INSERT INTO outlane_lane_states (stream, partition, member, reason, detail, since) VALUES ($1, $2, $3, 'no_leader', '', now())`,
			stream, partition, member)
	}
	claimed := func(d *database, owner, ago string) {
		d.exec(`UPDATE outlane_partitions SET owner = $1, claimed_at = now() - $2::interval`, owner, ago)
	}
	for _, c := range []struct {
		name   string
		target int
		want   int
		make   func(*database)
	}{
		{"empty table", 100, 0, func(*database) {}},
		{"one event", 100, 1, func(d *database) { add(d, "A", 1, 1) }},
		{"a little in every partition", 100, 1, func(d *database) {
			for p := range testPartitions {
				add(d, "A", p, 5)
			}
		}},
		{"exactly one worker's worth", 80, 1, func(d *database) {
			for p := range testPartitions {
				add(d, "A", p, 5)
			}
		}},
		{"one more than that", 79, 2, func(d *database) {
			for p := range testPartitions {
				add(d, "A", p, 5)
			}
		}},
		{"one key", 10, 1, func(d *database) { add(d, "A", 1, 500) }},
		{"one hot key beside a trickle", 10, 2, func(d *database) {
			add(d, "A", 1, 500)
			for p := 2; p < 8; p++ {
				add(d, "A", p, 1)
			}
		}},
		{"several streams of one partition", 10, 1, func(d *database) {
			for _, stream := range []string{"A", "B", "C"} {
				add(d, stream, 1, 50)
			}
		}},
		{"streams of different partitions", 10, 3, func(d *database) {
			for p, stream := range []string{"A", "B", "C"} {
				add(d, stream, p, 50)
			}
		}},
		{"as many as partitions, and no more", 1, testPartitions, func(d *database) {
			for p := range testPartitions {
				add(d, "A", p, 20)
			}
		}},
		{"processed rows", 1, 0, func(d *database) {
			add(d, "A", 1, 20)
			d.exec("UPDATE outbox_events SET processed = true")
		}},
		{"rows under the cursor", 10, 1, func(d *database) {
			add(d, "A", 1, 30)
			add(d, "A", 2, 5)
			d.exec("INSERT INTO outlane_lanes (stream, partition, cursor) VALUES ('A', 1, 28)")
		}},
		{"a cursor of an earlier sequence", 10, 2, func(d *database) {
			d.exec("INSERT INTO outlane_lanes (stream, partition, cursor) VALUES ('A', 1, 1000)")
			d.exec("ALTER SEQUENCE outbox_events_seq RESTART") // another file
			add(d, "A", 1, 30)
			add(d, "A", 2, 5)
		}},
		{"dead letters and parked keys", 1, 1, func(d *database) {
			add(d, "A", 1, 5)
			add(d, "A", 2, 3)
			d.exec("UPDATE outbox_events SET error = 'e' WHERE partition = 1")
			d.exec(`INSERT INTO outbox_dead_letters (event_id, seq, stream, partition, partition_key, topic, reason, error, attempts, blocks)
				SELECT id, seq, stream, partition, partition_key, topic, 'r', 'e', 1, true FROM outbox_events WHERE seq = 1`)
			d.exec(`INSERT INTO outbox_parked_events (event_id, seq, stream, partition, partition_key)
				SELECT id, seq, stream, partition, partition_key FROM outbox_events WHERE seq BETWEEN 2 AND 5`)
		}},
		{"released and retried events", 1, 2, func(d *database) {
			add(d, "A", 1, 1)
			add(d, "A", 2, 1)
			d.exec("UPDATE outbox_events SET error = 'e'")
			d.exec(`INSERT INTO outbox_dead_letters (event_id, seq, stream, partition, partition_key, topic, reason, error, attempts, blocks, resolved_at, resolution)
				SELECT id, seq, stream, partition, partition_key, topic, 'r', 'e', 1, true, now(), 'retried' FROM outbox_events WHERE seq = 1`)
			d.exec(`INSERT INTO outbox_parked_events (event_id, seq, stream, partition, partition_key, released_at)
				SELECT id, seq, stream, partition, partition_key, now() FROM outbox_events WHERE seq = 2`)
		}},
		{"a stream that is down", 1, 3, func(d *database) {
			claimed(d, "one", "1 hour")
			for p := range 8 {
				add(d, "DOWN", p, 50)
				state(d, "DOWN", p, "one")
			}
			for p := range 3 {
				add(d, "UP", p, 50)
			}
		}},
		{"nothing but a stream that is down", 1, 1, func(d *database) {
			claimed(d, "one", "1 hour")
			for p := range 8 {
				add(d, "DOWN", p, 50)
				state(d, "DOWN", p, "one")
			}
		}},
		{"what somebody else said of the lane", 1, 8, func(d *database) {
			claimed(d, "two", "1 hour")
			for p := range 8 {
				add(d, "A", p, 50)
				state(d, "A", p, "one")
			}
		}},
		{"what its owner said before its last claim", 1, 8, func(d *database) {
			for p := range 8 {
				add(d, "A", p, 50)
				state(d, "A", p, "one")
			}
			d.exec("UPDATE outlane_lane_states SET saved_at = now() - interval '2 hours'")
			claimed(d, "one", "1 hour")
		}},
		{"what was said, while the new owner is just taking over", 1, 1, func(d *database) {
			for p := range 8 {
				add(d, "A", p, 50)
				state(d, "A", p, "one")
			}
			claimed(d, "two", "1 second")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t)
			d.t = t
			c.make(d)
			require.Equal(t, c.want, one[int](d, "SELECT outbox_workers_wanted($1)", c.target))
		})
	}
}

func TestArgumentsOfWorkersWanted(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	for _, target := range []string{"0", "-1", "NULL"} {
		_, err := d.conn.Exec(ctx, "SELECT outbox_workers_wanted("+target+")")
		require.ErrorContains(t, err, "at least 1", target)
	}
	require.Zero(t, one[int](d, "SELECT outbox_workers_wanted(9223372036854775000)"))
	require.Zero(t, one[int](d, "SELECT outbox_workers_wanted()"), "10000 unless said otherwise")
	for p := range testPartitions {
		d.insert("A", keyIn(p, 0), 2)
	}
	for most, want := range map[string]int{"NULL": 16, "100": 16, "16": 16, "10": 10, "1": 1} {
		require.Equal(t, want, one[int](d, "SELECT outbox_workers_wanted(1, "+most+")"), most)
	}
}

func TestScalerMayAskAndNothingElse(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	d.insert("A", keyIn(1, 0), 3)
	name, url := pgtest.Role(t, d.url)
	conn := pgtest.Connect(t, url)
	ask := func() (wanted int, err error) {
		err = conn.QueryRow(ctx, "SELECT outbox_workers_wanted(1)").Scan(&wanted)
		return wanted, err
	}
	_, err := ask()
	require.ErrorContains(t, err, "permission denied")
	require.NoError(t, migrations.Grants(ctx, d.url, "public", migrations.Roles{Scaler: name}))
	wanted, err := ask()
	require.NoError(t, err)
	require.Equal(t, 1, wanted)
	for _, statement := range []string{"SELECT id FROM outbox_events", "SELECT * FROM outlane_config", "UPDATE outlane_partitions SET epoch = 0"} {
		_, err = conn.Exec(ctx, statement)
		require.ErrorContains(t, err, "permission denied", statement)
	}
	_, err = conn.Exec(ctx, "CREATE TEMP TABLE outbox_events (stream text, partition int, seq bigint, processed bool, error text, id text)")
	require.NoError(t, err)
	wanted, err = ask()
	require.NoError(t, err)
	require.Equal(t, 1, wanted, "its own tables do not stand before ours")
}

func TestPlanOfWorkersWanted(t *testing.T) {
	t.Parallel()
	for name, fill := range map[string]string{
		"never analyzed": "",
		"analyzed with one lane, then others came": `INSERT INTO outbox_events (stream, topic, partition_key, payload)
			SELECT 'A', 't', 'k', '{}' FROM generate_series(1, 2000)`,
		"many lanes": `INSERT INTO outbox_events (stream, topic, partition_key, payload)
			SELECT 'S' || n % 10, 't', n::text, '{}' FROM generate_series(1, 4000) n`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t)
			if fill != "" {
				d.exec(fill)
				d.exec("VACUUM ANALYZE")
			}
			d.exec(`INSERT INTO outbox_events (stream, topic, partition_key, payload) SELECT 'B', 't', n::text, '{}' FROM generate_series(1, 1000) n`)
			plans := nestedPlans(t, d.url, "SELECT outbox_workers_wanted(100)")
			requirePlan(t, name, plans[0], []string{
				"Recursive Union", "Index Only Scan using outbox_events_lane on outbox_events e*",
				"Index Only Scan using outbox_events_lane on outbox_events e*",
			})
			requirePlan(t, name, plans[len(plans)-1], []string{
				"Index Scan using outlane_lane_states_pkey on outlane_lane_states t",
				"Index Scan using outlane_lanes_pkey on outlane_lanes c*",
				"Limit", "Index Scan using outbox_events_lane on outbox_events e*",
			})
		})
	}
}

// nestedPlans are the plans of the statements on outbox_events that sql's function ran.
func nestedPlans(t testing.TB, url, sql string) [][]string {
	t.Helper()
	config, err := pgx.ParseConfig(url)
	require.NoError(t, err)
	var plans [][]string
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		var lines []string
		for line := range strings.SplitSeq(n.Message, "\n") {
			line, _, _ = strings.Cut(line, "  (cost=")
			lines = append(lines, line)
		}
		if strings.Contains(n.Message, "outbox_events_lane") {
			plans = append(plans, lines)
		}
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	require.NoError(t, err)
	defer func() { _ = conn.Close(ctx) }()
	for _, statement := range []string{
		"LOAD 'auto_explain'", "SET auto_explain.log_min_duration = 0", "SET auto_explain.log_nested_statements = on", "SET client_min_messages = log", sql,
	} {
		_, err = conn.Exec(ctx, statement)
		require.NoError(t, err, statement)
	}
	require.Greater(t, len(plans), 1)
	return plans
}

func TestWorkersWantedFromTheProgram(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	for p := range 5 {
		d.insert("A", keyIn(p, 0), 3)
	}
	name, url := pgtest.Role(t, d.url)
	require.NoError(t, migrations.Grants(ctx, d.url, "public", migrations.Roles{Scaler: name}))
	for _, u := range []string{url, d.url} {
		s := openURL(t, u)
		for most, want := range map[int]int{0: 5, 3: 3, 100: 5} {
			wanted, err := s.WorkersWanted(ctx, 1, most)
			require.NoError(t, err)
			require.Equal(t, want, wanted, most)
		}
	}
}

// What a call reads depends on what waits, and on the second argument, not on what was processed.
func TestWorkersWantedReadsNoMoreThanItMust(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	fill := func(n int) {
		d.exec(`INSERT INTO outbox_events (stream, topic, partition_key, payload) SELECT 'A', 't', n::text, '{}' FROM generate_series(1, $1::int) n`, n)
	}
	blocks := func(sql string) (n int) {
		var plan string
		require.NoError(t, d.conn.QueryRow(ctx, "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "+sql).Scan(&plan))
		var parsed []struct {
			Plan struct {
				Hit  int `json:"Shared Hit Blocks"`
				Read int `json:"Shared Read Blocks"`
			}
		}
		require.NoError(t, json.Unmarshal([]byte(plan), &parsed))
		return parsed[0].Plan.Hit + parsed[0].Plan.Read
	}
	settle := func() {
		d.exec("UPDATE outbox_events SET processed = true WHERE NOT processed")
		d.exec(`INSERT INTO outlane_lanes (stream, partition, cursor) SELECT 'A', p, (SELECT max(seq) FROM outbox_events) FROM generate_series(0, 15) p
			ON CONFLICT (stream, partition) DO UPDATE SET cursor = excluded.cursor`)
	}
	const one, all = "SELECT outbox_workers_wanted(100, 1)", "SELECT outbox_workers_wanted(100)"
	fill(500)
	settle()
	blocks(all) // the first call reads the catalogue
	few := blocks(all)
	fill(10_000)
	settle()
	require.Less(t, blocks(all), few+200, "processed rows are not read")
	fill(5000)
	capped, whole := blocks(one), blocks(all)
	require.Greater(t, whole, few+300, "what waits is read")
	require.Less(t, capped, whole/4, "only so many as one worker takes")
}
