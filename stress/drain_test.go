package stress_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/crash"
	"github.com/outlane/outlane/internal/pgtest"
	"github.com/outlane/outlane/internal/pooltest"
)

// holdMarks makes marks wait until release is called.
func (s *scene) holdMarks() (release func()) {
	s.T.Helper()
	s.Exec(`CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN NEW; END $$`)
	s.Exec(`CREATE TRIGGER hold BEFORE UPDATE ON outbox_events FOR EACH ROW EXECUTE FUNCTION hold()`)
	holder := pgtest.Connect(s.T, s.URL)
	_, err := holder.Exec(s.T.Context(), "SELECT pg_advisory_lock(1)")
	require.NoError(s.T, err)
	return func() { require.NoError(s.T, holder.Close(context.WithoutCancel(s.T.Context()))) }
}

// TestRowsThatAppearWhileAPartitionDrainsAreNotPassed has the owner die when it has saved the cursors of a partition that it drained for long.
func TestRowsThatAppearWhileAPartitionDrainsAreNotPassed(t *testing.T) {
	t.Parallel()
	for mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, mode, 2)
			release := s.holdMarks()
			victim := s.worker("victim", crash.CrashVariable+"="+crash.Released)
			victim.Alone()
			s.backlog(aFew)
			stored := func(n int) {
				require.True(t, pooltest.WaitFor(func() bool { return len(s.Stored("A")) >= n }), "A has %d messages", n)
			}
			stored(keys * aFew) // and none is marked
			other := s.worker("other")
			require.True(t, pooltest.WaitFor(func() bool { return victim.Metric("outlane_partitions_owned") == 1 }), "one of two drains")
			s.begin()
			s.commit()
			stored(keys*aFew + 1) // the victim has seen the new rows, and sent those that are still its own
			release()
			died(victim, t)
			other.Alone()
			s.finish()
			s.verdict()
		})
	}
}
