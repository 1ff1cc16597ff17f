package outbox_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/pgtest"
	"github.com/outlane/outlane/migrations"
	"github.com/outlane/outlane/outbox"
)

// producer returns a migrated database as its superuser, and as a role with the rights of a producer: INSERT and nothing else.
func producer(t testing.TB) (admin, role string) {
	t.Helper()
	admin = pgtest.Migrated(t, 16)
	name, role := pgtest.Role(t, admin)
	require.NoError(t, migrations.Grants(context.Background(), admin, "public", migrations.Roles{Producer: name}))
	return admin, role
}

// recorder is a transaction of database/sql that only remembers.
type recorder struct{ queries []string }

func (r *recorder) ExecContext(_ context.Context, query string, _ ...any) (sql.Result, error) {
	r.queries = append(r.queries, query)
	return nil, nil
}

type row struct {
	ID, Stream, Topic, PartitionKey string
	Payload, ContentType, Headers   *string
	PayloadBytes                    []byte
	CreatedAt                       time.Time
	Processed                       bool
}

func rows(t testing.TB, admin string) []row {
	t.Helper()
	conn := pgtest.Connect(t, admin)
	result, err := conn.Query(context.Background(), `SELECT id, stream, topic, partition_key, payload::text, payload_bytes, content_type,
		headers::text, created_at, processed FROM public.outbox_events ORDER BY seq`)
	require.NoError(t, err)
	list, err := pgx.CollectRows(result, pgx.RowToStructByName[row])
	require.NoError(t, err)
	return list
}

func ids(t testing.TB, admin string) []string {
	t.Helper()
	list := []string{}
	for _, r := range rows(t, admin) {
		list = append(list, r.ID)
	}
	return list
}

// sample has every field in every form.
func sample() []outbox.Event {
	return []outbox.Event{
		{Topic: "plain.topic"},
		{ID: `id "1" \`, Stream: "STREAM_PAYOUT", Topic: "payout.generated", Key: "t_555\n\"é\"", Payload: object{"team_id": "other", "html": "<&>"},
			ContentType: "application/json", Headers: map[string]string{"traceparent": "00-ab-cd-01", "X-Quote": `"\é`},
			CreatedAt: time.Date(2024, 2, 29, 12, 30, 45, 123456000, time.FixedZone("", 3600))},
		{ID: "2", Stream: "S", Topic: "a", Payload: json.RawMessage(` {"team_id": "t_777", "n": 12345678901234567890.10} `)},
		{ID: "3", Stream: "S", Topic: "a", Payload: json.RawMessage("null")},
		{ID: "4", Stream: "S", Topic: "a", Bytes: []byte{0, 1, 0xff}, ContentType: "application/x-protobuf"},
		{ID: "5", Stream: "S", Topic: "a", Bytes: []byte{}},
		{ID: "6", Stream: "S", Topic: "a", Payload: "text"},
	}
}

func requireSample(t *testing.T, before time.Time, got []row) {
	t.Helper()
	require.Len(t, got, 7)
	id, err := uuid.Parse(got[0].ID)
	require.NoError(t, err)
	require.EqualValues(t, 7, id.Version())
	require.WithinRange(t, got[0].CreatedAt, before.Add(-time.Minute), time.Now().Add(time.Minute))
	require.Equal(t, row{ID: got[0].ID, Topic: "plain.topic", CreatedAt: got[0].CreatedAt}, got[0])

	require.Equal(t, `id "1" \`, got[1].ID)
	require.Equal(t, "t_555\n\"é\"", got[1].PartitionKey)
	require.JSONEq(t, `{"team_id":"other","html":"<&>"}`, *got[1].Payload)
	require.JSONEq(t, `{"traceparent":"00-ab-cd-01","X-Quote":"\"\\é"}`, *got[1].Headers)
	require.Equal(t, "application/json", *got[1].ContentType)
	require.True(t, got[1].CreatedAt.Equal(time.Date(2024, 2, 29, 11, 30, 45, 123456000, time.UTC)))

	require.Equal(t, "t_777", got[2].PartitionKey)
	require.Equal(t, `{"n": 12345678901234567890.10, "team_id": "t_777"}`, *got[2].Payload)
	require.Equal(t, "null", *got[3].Payload)
	require.Equal(t, "S", got[3].PartitionKey)
	require.Nil(t, got[4].Payload)
	require.Equal(t, []byte{0, 1, 0xff}, got[4].PayloadBytes)
	require.Equal(t, []byte{}, got[5].PayloadBytes)
	require.Equal(t, `"text"`, *got[6].Payload)
}

func TestEnqueueStoresEveryField(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			admin, role := producer(t)
			before := time.Now()
			conn := pgtest.Connect(t, role+"&default_query_exec_mode="+mode)
			require.NoError(t, pgx.BeginFunc(context.Background(), conn, func(tx pgx.Tx) error {
				return outbox.Enqueue(context.Background(), tx, sample()...)
			}))
			requireSample(t, before, rows(t, admin))
		})
	}
}

func TestEnqueueSQLStoresEveryField(t *testing.T) {
	t.Parallel()
	admin, role := producer(t)
	before := time.Now()
	db, err := sql.Open("pgx", role)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	tx, err := db.Begin()
	require.NoError(t, err)
	require.NoError(t, outbox.EnqueueSQL(context.Background(), tx, sample()...))
	require.NoError(t, tx.Commit())
	requireSample(t, before, rows(t, admin))

	require.ErrorIs(t, outbox.EnqueueSQL(context.Background(), db, outbox.Event{Topic: "a"}), outbox.ErrNoTransaction)
	require.Len(t, rows(t, admin), 7)
}

func TestEnqueueThroughAPooler(t *testing.T) {
	t.Parallel()
	admin, role := producer(t)
	u, err := url.Parse(role)
	require.NoError(t, err)
	pooled, err := url.Parse(pgtest.StartPgbouncer(t, admin))
	require.NoError(t, err)
	pooled.User = u.User
	// More clients than one server session, in turns: a named statement would not be there for the second.
	for _, id := range []string{"1", "2", "3"} {
		conn := pgtest.Connect(t, pooled.String()+"&default_query_exec_mode=exec")
		require.NoError(t, pgx.BeginFunc(context.Background(), conn, func(tx pgx.Tx) error {
			return outbox.Enqueue(context.Background(), tx, outbox.Event{ID: id, Topic: "a", Stream: "S"})
		}))
	}
	require.Equal(t, []string{"1", "2", "3"}, ids(t, admin))
}

func TestEventsFollowTheirTransaction(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	admin, role := producer(t)
	conn := pgtest.Connect(t, role)
	event := func(id string) outbox.Event { return outbox.Event{ID: id, Topic: "a", Stream: "S", Payload: object{}} }

	tx, err := conn.Begin(ctx)
	require.NoError(t, err)
	require.NoError(t, outbox.Enqueue(ctx, tx, event("rolled back")))
	require.NoError(t, tx.Rollback(ctx))

	tx, err = conn.Begin(ctx)
	require.NoError(t, err)
	require.NoError(t, outbox.Enqueue(ctx, tx, event("1")))
	savepoint, err := tx.Begin(ctx)
	require.NoError(t, err)
	require.NoError(t, outbox.Enqueue(ctx, savepoint, event("undone")))
	require.NoError(t, savepoint.Rollback(ctx))
	savepoint, err = tx.Begin(ctx)
	require.NoError(t, err)
	require.NoError(t, outbox.Enqueue(ctx, savepoint, event("2")))
	require.NoError(t, savepoint.Commit(ctx))
	// A refused event leaves the transaction as it was.
	require.ErrorIs(t, outbox.Enqueue(ctx, tx, event("3"), outbox.Event{}), outbox.ErrTopic)
	require.NoError(t, outbox.Enqueue(ctx, tx))
	require.NoError(t, outbox.Enqueue(ctx, tx, event("4")))
	require.Empty(t, rows(t, admin), "nothing is visible before the commit")
	require.NoError(t, tx.Commit(ctx))
	require.Equal(t, []string{"1", "2", "4"}, ids(t, admin))
}

func TestIDThatExistsIsAnError(t *testing.T) {
	t.Parallel()
	admin, role := producer(t)
	conn := pgtest.Connect(t, role)
	enqueue := func(list ...string) error {
		return pgx.BeginFunc(context.Background(), conn, func(tx pgx.Tx) error {
			for _, id := range list {
				if err := outbox.Enqueue(context.Background(), tx, outbox.Event{ID: id, Topic: "a"}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, enqueue("1"))
	err := enqueue("2", "1")
	var pgErr *pgconn.PgError
	require.ErrorAs(t, err, &pgErr)
	require.Equal(t, "23505", pgErr.Code)
	require.Equal(t, []string{"1"}, ids(t, admin))
}

func TestThousandEventsAreOneRoundTripInOrder(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	admin, role := producer(t)
	conn, wire := watched(t, role)
	events := make([]outbox.Event, 1000)
	var want []string
	for i := range events {
		events[i] = outbox.Event{ID: uuid.NewString(), Stream: "S", Topic: "a", Payload: object{"n": i, "team_id": "t"}}
		want = append(want, events[i].ID)
	}
	tx, err := conn.Begin(ctx)
	require.NoError(t, err)
	// pgx prepares a statement at its first use on a connection, which is a round trip of its own.
	require.NoError(t, outbox.Enqueue(ctx, tx, outbox.Event{ID: "first", Topic: "a"}))
	wire.reset()
	require.NoError(t, outbox.Enqueue(ctx, tx, events...))
	require.Equal(t, 1, wire.roundTrips())
	require.Equal(t, 1, wire.executed())
	require.NoError(t, tx.Commit(ctx))
	require.Equal(t, append([]string{"first"}, want...), ids(t, admin))
}

func TestSchemaIsQuotedAndCanBeLeftToTheSearchPath(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	const schema = `Out "lane"; 1`
	admin := pgtest.Database(t)
	_, err := migrations.Up(ctx, admin, schema, migrations.Options{Partitions: 4})
	require.NoError(t, err)
	conn := pgtest.Connect(t, admin)
	_, err = conn.Exec(ctx, "SELECT set_config('search_path', $1, false)", pgx.Identifier{schema}.Sanitize())
	require.NoError(t, err)
	for _, name := range []string{schema, ""} {
		o := outbox.New(outbox.Schema(name))
		require.NoError(t, pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if _, err := o.EnqueueCopy(ctx, tx, one(outbox.Event{Topic: "a"})); err != nil {
				return err
			}
			return o.Enqueue(ctx, tx, outbox.Event{Topic: "a"})
		}))
	}
	var n int
	require.NoError(t, conn.QueryRow(ctx, "SELECT count(*) FROM outbox_events").Scan(&n))
	require.Equal(t, 4, n)
}

func TestPackageNeedsNoWorkerAndNoBroker(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	require.NoError(t, err)
	deps := strings.Fields(string(out))
	require.Contains(t, deps, "github.com/outlane/outlane/outbox")
	for _, dep := range deps {
		require.NotContains(t, dep, "nats-io")
		if strings.HasPrefix(dep, "github.com/outlane/outlane/") {
			require.Equal(t, "github.com/outlane/outlane/outbox", dep)
		}
	}
}
