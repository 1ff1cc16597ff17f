package migrations_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/pgtest"
	"github.com/outlane/outlane/migrations"
	"github.com/outlane/outlane/partition"
)

func TestPartitionsInSQLAreThoseInGo(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../partition/testdata/vectors.json")
	require.NoError(t, err)
	var file struct {
		Vectors []struct {
			Description, Text string
			Repeat            int
			Hash              uint32
		}
	}
	require.NoError(t, json.Unmarshal(data, &file))
	require.NotEmpty(t, file.Vectors)
	conn := inSchema(t, pgtest.Migrated(t, 64), "public")
	for _, v := range file.Vectors {
		key := strings.Repeat(v.Text, v.Repeat)
		for _, n := range []int{1, 2, 3, 7, 64, 1000, 4096} {
			require.Equal(t, int(v.Hash%uint32(n)), one[int](t, conn, "SELECT outlane_partition_of($1, $2)", key, n), v.Description)
		}
		require.Equal(t, partition.Of(key, 64), one[int](t, conn, "SELECT outbox_partition_of($1)", key), v.Description)
		got := one[int](t, conn, "INSERT INTO outbox_events (stream, topic, partition_key) VALUES ('S', 't', $1) RETURNING partition", key)
		require.Equal(t, partition.Of(key, 64), got, v.Description)
	}
}

func TestPartitionsDoNotDependOnTheEncoding(t *testing.T) {
	t.Parallel()
	name := "latin1_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	pgtest.Exec(t, pgtest.Shared(t).URL("postgres"), "CREATE DATABASE "+name+" TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'")
	url := pgtest.Shared(t).URL(name)
	up(t, url, "public", migrations.Options{Partitions: 64})
	conn := inSchema(t, url+"&client_encoding=UTF8", "public")
	for _, key := range []string{"t_555", "é", "Zürich", "ÿ"} {
		got := one[int](t, conn, "INSERT INTO outbox_events (stream, topic, partition_key) VALUES ('S', 't', $1) RETURNING partition", key)
		require.Equal(t, partition.Of(key, 64), got, key)
	}
}

func TestKeyIsWhatTheProducerGaveOrThePayloadHas(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	up(t, url, "public", migrations.Options{KeyField: "team's id"})
	conn := inSchema(t, url, "public")
	for _, c := range []struct {
		key, payload any
		want         string
	}{
		{"given", `{"team's id": "p"}`, "given"}, {"", `{"team's id": "p"}`, ""}, {nil, `{"team's id": "p"}`, "p"}, {nil, `{"team's id": 1.50}`, "1.50"},
		{nil, `{"team's id": ""}`, ""}, {nil, `{"team's id": null}`, "S"}, {nil, `{"team_id": "x"}`, "S"}, {nil, `["team's id"]`, "S"},
		{nil, `"team's id"`, "S"}, {nil, nil, "S"}, {nil, `{"team's id": {"a": [1]}}`, `{"a": [1]}`},
	} {
		got := one[string](t, conn, "INSERT INTO outbox_events (stream, topic, partition_key, payload) VALUES ('S', 't', $1, $2) RETURNING partition_key",
			c.key, c.payload)
		require.Equal(t, c.want, got, "%v %v", c.key, c.payload)
	}
}

func TestIDsAreTimeOrderedUUIDs(t *testing.T) {
	t.Parallel()
	conn := inSchema(t, pgtest.Migrated(t, 4), "public")
	seen := map[string]bool{}
	before := time.Now().Add(-time.Hour)
	var last int64
	for range 50 {
		id := one[string](t, conn, "INSERT INTO outbox_events (stream, topic) VALUES ('S', 't') RETURNING id")
		u, err := uuid.Parse(id)
		require.NoError(t, err)
		require.Equal(t, id, u.String())
		require.EqualValues(t, 7, u.Version())
		require.Equal(t, uuid.RFC4122, u.Variant())
		milliseconds := int64(u[0])<<40 | int64(u[1])<<32 | int64(u[2])<<24 | int64(u[3])<<16 | int64(u[4])<<8 | int64(u[5])
		require.WithinRange(t, time.UnixMilli(milliseconds), before, before.Add(2*time.Hour))
		require.GreaterOrEqual(t, milliseconds, last)
		require.False(t, seen[id])
		last, seen[id] = milliseconds, true
	}
}

func TestRowsSayWhatTheirTransactionSaw(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t, 4)
	conn, other := inSchema(t, url, "public"), inSchema(t, url, "public")
	older, err := other.Begin(ctx)
	require.NoError(t, err)
	var open uint64
	require.NoError(t, older.QueryRow(ctx, "SELECT pg_current_xact_id()").Scan(&open))
	_, err = conn.Exec(ctx, "INSERT INTO outbox_events (id, stream, topic) VALUES ('a', 'S', 't')")
	require.NoError(t, err)
	require.LessOrEqual(t, one[uint64](t, conn, "SELECT xact_oldest FROM outbox_events"), open)
	require.Greater(t, one[uint64](t, conn, "SELECT xact FROM outbox_events"), open)
	require.NoError(t, older.Rollback(ctx))
	_, err = conn.Exec(ctx, "INSERT INTO outbox_events (id, stream, topic) VALUES ('b', 'S', 't')")
	require.NoError(t, err)
	require.LessOrEqual(t, one[uint64](t, conn, "SELECT xact_oldest FROM outbox_events WHERE id = 'b'"),
		one[uint64](t, conn, "SELECT xact FROM outbox_events WHERE id = 'b'"))
}

func TestInsertWithoutSetupSaysWhatToRun(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	conn := inSchema(t, url, "public")
	_, err := migrations.Up(ctx, url, "public", migrations.Options{KeyField: "no text\x00"})
	require.ErrorContains(t, err, "store the settings")
	_, err = conn.Exec(ctx, "INSERT INTO outbox_events (stream, topic) VALUES ('S', 't')")
	require.ErrorContains(t, err, "not set up")
}
