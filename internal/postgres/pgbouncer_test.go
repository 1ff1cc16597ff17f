package postgres_test

import (
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/postgres"
)

func TestBouncerPoolsTransactions(t *testing.T) {
	t.Parallel()
	s := start(t)
	b, err := postgres.StartBouncer(deadline(t), s.URL("postgres"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })

	// Two clients that take turns get the same server session, which no session-mode pool would give them.
	const me = "SELECT pg_backend_pid()::text"
	one, two := connect(t, b.URL()), connect(t, b.URL())
	var first, second string
	require.NoError(t, one.QueryRow(deadline(t), me, pgx.QueryExecModeSimpleProtocol).Scan(&first))
	require.NoError(t, two.QueryRow(deadline(t), me, pgx.QueryExecModeSimpleProtocol).Scan(&second))
	require.Equal(t, first, second)

	exec1(t, s.URL("postgres"), "CREATE ROLE other LOGIN")
	u, err := url.Parse(b.URL())
	require.NoError(t, err)
	u.User = url.User("other")
	conn := connect(t, u.String())
	var user string
	require.NoError(t, conn.QueryRow(deadline(t), "SELECT current_user", pgx.QueryExecModeSimpleProtocol).Scan(&user))
	require.Equal(t, "other", user)

	u.RawQuery += "&enable_seqscan=off"
	_, err = pgx.Connect(deadline(t), u.String())
	require.ErrorContains(t, err, "unsupported startup parameter")
}
