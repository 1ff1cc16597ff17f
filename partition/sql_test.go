package partition_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/pgtest"
)

func TestVectorsInSQL(t *testing.T) {
	t.Parallel()
	const configured = 64
	conn := pgtest.Connect(t, pgtest.Migrated(t, configured))
	for _, v := range vectors(t) {
		for n, want := range v.Partitions {
			n, err := strconv.Atoi(n)
			require.NoError(t, err)
			var got int
			require.NoError(t, conn.QueryRow(t.Context(), "SELECT outlane_partition_of($1, $2)", v.key(), n).Scan(&got))
			require.Equal(t, want, got, "%s among %d", v.Description, n)
		}
		var got int
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT outbox_partition_of($1)", v.key()).Scan(&got))
		require.Equal(t, v.Partitions[strconv.Itoa(configured)], got, v.Description)
		require.NoError(t, conn.QueryRow(t.Context(), `INSERT INTO outbox_events (stream, topic, partition_key) VALUES ('S', 's.t', $1) RETURNING partition`,
			v.key()).Scan(&got))
		require.Equal(t, v.Partitions[strconv.Itoa(configured)], got, "%s, by the trigger", v.Description)
	}
}
