package store

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

func TestRoutesGiveStreamsToEventsWithoutOne(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.open()
	routes := []Route{
		{"payout.>", "PAYOUT"}, {"agent.*.run", "RUN"}, {"agent.>", "AGENT"}, {"odd+(x)[1]{2}|^$\\d?", "ODD"}, {"a.b", "DOT"}, {"ünï.>", "ÜNÏ"},
		{"payout.late", "NEVER"}, {"x.*y", "STAR"}, {"*", "ONE"},
	}
	require.NoError(t, s.ReplaceRoutes(ctx, []Route{{">", "GONE"}}))
	require.NoError(t, s.ReplaceRoutes(ctx, routes))
	got, err := s.Routes(ctx)
	require.NoError(t, err)
	require.Equal(t, routes, got)
	for topic, want := range map[string]string{
		"payout.generated": "PAYOUT", "payout.a.b.c": "PAYOUT", "payout.late": "PAYOUT", "payout": "ONE", "payoutx.a": "", "xpayout.a": "",
		"agent.1.run": "RUN", "agent.1.2.run": "AGENT", "agent.run": "AGENT", "odd+(x)[1]{2}|^$\\d?": "ODD", "odd": "ONE",
		"a.b": "DOT", "axb": "ONE", "a.b.c": "", "ünï.code": "ÜNÏ", "x.*y": "STAR", "x.zy": "", "two.words": "", "one": "ONE", "line\nbreak": "ONE",
	} {
		id := one[string](d, "INSERT INTO outbox_events (topic) VALUES ($1) RETURNING id", topic)
		require.Equal(t, want, one[string](d, "SELECT stream FROM outbox_events WHERE id = $1", id), topic)
	}
	given := one[string](d, "INSERT INTO outbox_events (stream, topic) VALUES ('GIVEN', 'payout.a') RETURNING stream")
	require.Equal(t, "GIVEN", given)
	require.NoError(t, s.ReplaceRoutes(ctx, nil))
	got, err = s.Routes(ctx)
	require.NoError(t, err)
	require.Empty(t, got)

	require.NoError(t, s.run(ctx, "x", call{sql: "SELECT $1::text ~ $2", args: []any{"***=a", topicPattern("***=a")},
		row: func(r pgx.Rows) error {
			var ok bool
			require.NoError(t, r.Scan(&ok))
			require.True(t, ok)
			return nil
		}}))
}
