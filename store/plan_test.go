package store

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/pgtest"
)

// planned is a statement with the plan that it relies on.
type planned struct {
	name, sql string
	args      []string // literals
	want      []string // lines, as far as they say something about outbox_events
}

const laneCond = "Index Cond: ((stream = ANY ($1)) AND (partition = $2) AND (seq > $3) AND (seq <= $4))"

var hot = []planned{
	{"Fetch", fetchRange, []string{"'{A}'", "1", "0", "100", "250", "16000"}, []string{
		"Limit", "Index Scan using outbox_events_lane on outbox_events e*", laneCond}},
	{"Fetch with late numbers", fetchLate, []string{"'{A}'", "1", "50", "100", "250", "16000", "'{1,2}'"}, []string{
		"Append", "Limit", "Nested Loop", "Function Scan on unnest l", "Index Scan using * on outbox_events e*", "Index Cond: *(seq = l.seq)*",
		"Limit", "Index Scan using outbox_events_lane on outbox_events e*", laneCond}},
	{"Fetch of large bodies", fetchBodies, []string{"'{a,b}'"}, []string{
		"Nested Loop", "Function Scan on unnest b", "Index Scan using outbox_events_pkey on outbox_events e*", "Index Cond: (id = b.id)"}},
	{"Arrivals", arrivals, []string{"1", "2", "'{1,2}'", `'\x00'`, "2000"}, []string{
		"Append", "Nested Loop Left Join", "Nested Loop", "Function Scan on unnest g",
		"Index Scan using outbox_events_seq_order on outbox_events e*", "Index Cond: (seq = g.seq)",
		"Nested Loop Left Join", "Index Scan using outbox_events_seq_order on outbox_events e*", "Index Cond: ((seq > $1) AND (seq <= $2))"}},
	{"Mark", mark, []string{"'{a,b}'", "'{1,2}'", "'{1,2}'"}, []string{
		"Update on outbox_events e*", "Index Scan using outbox_events_pkey on outbox_events e*", "Index Cond: (id = ANY ($1))"}},
	{"Mark by places", markPlaces, []string{"'{a,b}'", "'{1,2}'", "'{1,2}'", `'{"(0,1)","(0,2)"}'`}, []string{
		"Update on outbox_events e*", "Nested Loop", "Function Scan on m", "Tid Scan on outbox_events e*", "TID Cond: (ctid = m.place)"}},
	{"Streams", streams, nil, []string{
		"Recursive Union", "Limit", "Index Only Scan using outbox_events_lane on outbox_events e*",
		"Limit", "Index Only Scan using outbox_events_lane on outbox_events e*", "Index Cond: (stream > s*.stream)"}},
	{"Missing", missing, []string{"1", "2"}, []string{
		"Index Only Scan using outbox_events_seq_order on outbox_events e*", "Index Cond: ((seq > $1) AND (seq <= $2))", "WindowAgg",
		"Index Only Scan using outbox_events_seq_order on outbox_events e*"}},
	{"MaxSeq", maxSeq, nil, []string{"Limit", "Index Only Scan Backward using outbox_events_seq_order on outbox_events e*"}},
	{"Lag", lag, []string{"1000"}, []string{
		"Recursive Union", "Index Only Scan using outbox_events_lane on outbox_events e*",
		"Index Only Scan using outbox_events_lane on outbox_events e*", "Index Cond: (ROW(stream, partition) > ROW(l*.stream, l*.partition))",
		"Limit", "Index Scan using outbox_events_lane on outbox_events e*",
		"Index Cond: ((stream = ANY (ARRAY[l.stream])) AND (partition = l.partition) AND (seq > (COALESCE(*"}},
	{"DeadLetter", deadLetter, []string{"1", "1", "'a'", "'a'", "1", "1", "'a'", "'a'", "'a'", "'a'", "true"}, []string{
		"Update on outbox_events e*", "Index Scan using outbox_events_pkey on outbox_events e*", "Index Cond: (id = $3)"}},
	{"Park", park, []string{"1", "1", "'{a}'", "'a'", "'{1}'", "'{a}'"}, []string{
		"Update on outbox_events e*", "Index Scan using outbox_events_pkey on outbox_events e*", "Index Cond: (id = ANY ($3))"}},
}

// avoided are what no plan of these statements may have, whatever is in the table.
var avoided = []string{"Sort", "Seq Scan on outbox_events", "Bitmap", "Hash Join", "Merge Join", "Materialize", "Memoize", "Gather", "JIT"}

func TestPlansDoNotDependOnStatistics(t *testing.T) {
	t.Parallel()
	fill := `INSERT INTO outbox_events (stream, topic, partition_key, payload) SELECT '%s', 't', '%s', '{}' FROM generate_series(1, %d) n`
	states := []struct {
		name string
		make func(*database)
	}{
		{"never analyzed", func(*database) {}},
		{"vacuumed while empty", func(d *database) { d.exec("VACUUM ANALYZE outbox_events") }},
		{"analyzed with one lane, then others came", func(d *database) {
			d.exec(fmt.Sprintf(fill, "A", keyIn(1, 0), 2000))
			d.exec("VACUUM ANALYZE outbox_events")
			d.exec(fmt.Sprintf(fill, "B", keyIn(2, 0), 2000))
		}},
		{"many lanes", func(d *database) {
			d.exec(`INSERT INTO outbox_events (stream, topic, partition_key, payload)
				SELECT 'S' || n % 10, 't', n::text, '{}' FROM generate_series(1, 4000) n`)
			d.exec("VACUUM ANALYZE outbox_events")
		}},
	}
	for _, state := range states {
		t.Run(state.name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t)
			state.make(d)
			s := d.open()
			sessions := map[string]*pgx.Conn{"session": pooledConn(t, s), "pooler": pgtest.Connect(t, d.url)}
			for _, p := range hot {
				for way, conn := range sessions {
					plan := explainOn(t, conn, way == "pooler", s.text(p.sql), p.args)
					requirePlan(t, p.name+", "+way, plan, p.want)
				}
			}
		})
	}
}

// pooledConn is a connection as the store makes them.
func pooledConn(t testing.TB, s *Store) *pgx.Conn {
	t.Helper()
	conn, err := s.pool.Acquire(ctx)
	require.NoError(t, err)
	t.Cleanup(conn.Release)
	return conn.Conn()
}

// explain returns the plan that a statement has in the store's own sessions. args are literals.
func explain(t testing.TB, s *Store, sql string, args ...string) string {
	t.Helper()
	conn, err := s.pool.Acquire(ctx)
	require.NoError(t, err)
	defer conn.Release()
	return strings.Join(explainOn(t, conn.Conn(), false, s.text(sql), args), "\n")
}

// explainOn returns a statement's plan: the generic one, or behind a pooler, where statements are planned each time under local settings, that one.
func explainOn(t testing.TB, conn *pgx.Conn, pooler bool, sql string, args []string) []string {
	t.Helper()
	run := func(statement string) (lines []string) {
		results, err := conn.PgConn().Exec(ctx, statement).ReadAll()
		require.NoError(t, err, statement)
		for _, row := range results[0].Rows {
			lines = append(lines, string(row[0]))
		}
		return lines
	}
	run("BEGIN")
	defer run("ROLLBACK")
	if pooler {
		run(planLocally)
	}
	run("PREPARE explained AS " + sql)
	defer run("DEALLOCATE explained")
	execute := "EXPLAIN (COSTS OFF) EXECUTE explained"
	if len(args) > 0 {
		execute += "(" + strings.Join(args, ", ") + ")"
	}
	return run(execute)
}

// requirePlan wants lines of a plan to be there in that order, and none that are to be avoided. A * stands for anything; conditions are compared
// only where parameters are not replaced by their values.
func requirePlan(t *testing.T, name string, plan, want []string) {
	t.Helper()
	text := strings.Join(plan, "\n")
	for _, a := range avoided {
		require.NotContains(t, text, a, name)
	}
	i := 0
	for _, line := range plan {
		if i < len(want) && matches(want[i], strings.TrimPrefix(strings.TrimSpace(line), "->  ")) {
			i++
		}
		for i < len(want) && strings.HasPrefix(want[i], "Index Cond:") && strings.Contains(want[i], "$") && !strings.Contains(text, "$1") {
			i++
		}
	}
	require.Equal(t, len(want), i, "%s: the plan lacks %q:\n%s", name, want[min(i, len(want)-1)], text)
}

func matches(pattern, line string) bool {
	return regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*") + "$").MatchString(line)
}

func TestNoIndexNamesWhatAMarkWrites(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	// pg_depend has an index's columns, those of its expressions and those of its predicate.
	named := one[int](d, `SELECT count(*) FROM pg_index i JOIN pg_depend p ON p.classid = 'pg_class'::regclass AND p.objid = i.indexrelid
			AND p.refclassid = 'pg_class'::regclass AND p.refobjid = i.indrelid
		JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = p.refobjsubid
		WHERE i.indrelid = 'outbox_events'::regclass AND a.attname IN ('processed', 'processed_at', 'error', 'attempts')`)
	require.Zero(t, named)
	require.Equal(t, 3, one[int](d, "SELECT count(*) FROM pg_index WHERE indrelid = 'outbox_events'::regclass"))
}
