package stress_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/crash"
	"github.com/outlane/outlane/internal/pooltest"
)

// ends requires that a worker that was told to end does so in peace.
func ends(w *pooltest.Process, t *testing.T) {
	t.Helper()
	code, by := w.Ended()
	require.Zero(t, by)
	require.Zero(t, code)
}

func TestStaleOwnerAtEveryPoint(t *testing.T) {
	t.Parallel()
	eachCourse(t, func(t *testing.T, c course, mode string) {
		s := newScene(t, mode, partitions)
		victim, other := c.toThePoint(s, crash.PauseVariable, (*pooltest.Process).Paused)
		other.Alone()
		s.commit()
		s.finish()
		s.produce()
		victim.Resume()
		if c.ends {
			ends(victim, t)
		} else {
			victim.Says(lost...)
			s.owners("victim", "other")
		}
		s.finish()
		s.mend()
		s.verdict()
	})
}

// keepPausing pauses each of two workers in turn until the other has taken over. shared waits until both have their share.
func (s *scene) keepPausing(times int, shared func()) {
	s.backlog(aFew)
	s.produce()
	a, b := s.worker("a"), s.worker("b")
	for range times {
		shared()
		a.Pause()
		b.Alone()
		a.Resume()
		shared()
		b.Pause()
		a.Alone()
		b.Resume()
	}
	s.finish()
	shared()
	a.Says(lost...)
	b.Says(lost...)
	s.verdict()
}

func TestWorkersThatArePausedAgainAndAgain(t *testing.T) {
	t.Parallel()
	for mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, mode, partitions)
			s.keepPausing(3, func() { s.owners("a", "b") })
		})
	}
}

// TestMarkOfAStaleOwnerIsRefused has the rows look unmarked again when the new owner is done with them, so that a mark would show.
func TestMarkOfAStaleOwnerIsRefused(t *testing.T) {
	t.Parallel()
	for mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, mode, 1)
			s.backlog(aFew)
			victim := s.worker("victim", crash.PauseVariable+"="+crash.Marking)
			victim.Paused()
			other := s.worker("other")
			other.Alone()
			s.Drained()
			s.Exec("UPDATE outbox_events SET processed = false, processed_at = NULL")
			victim.Resume()
			victim.Says(lost...)
			require.True(t, pooltest.WaitFor(func() bool { return victim.Metric("outlane_mark_seconds_count") > 0 }), "it tries")
			require.Zero(t, s.Count("SELECT count(*) FROM outbox_events WHERE processed"))
			s.Exec("UPDATE outbox_events SET processed = true, processed_at = now()")
			other.Terminate()
			s.Insert("A", "a.x", "key-0", 3)
			victim.Alone()
			s.Drained()
			s.verdict()
		})
	}
}

// TestCursorOfAStaleOwnerIsRefused has the saved cursors set back when the new owner is done, as a person's decision does.
func TestCursorOfAStaleOwnerIsRefused(t *testing.T) {
	t.Parallel()
	s := newScene(t, "fast", 1)
	saved := func() {
		s.Eventually(2, "SELECT count(*) FROM outlane_lanes WHERE cursor >= (SELECT max(seq) FROM outbox_events)")
	}
	s.backlog(aFew)
	victim := s.worker("victim", crash.PauseVariable+"="+crash.HorizonSaved+":2")
	saved()
	s.Exec("INSERT INTO outbox_events (stream, topic, partition_key) VALUES ('A', 'a.x', 'key-0'), ('B', 'b.x', 'key-0')")
	victim.Paused()
	s.worker("other").Alone()
	s.Drained()
	saved()
	s.Exec("UPDATE outlane_lanes SET cursor = 0")
	victim.Resume()
	victim.Says(lost...)
	victim.Terminate()
	ends(victim, t)
	require.Zero(t, s.Count("SELECT max(cursor) FROM outlane_lanes"))
}

func TestDeadLetterOfAStaleOwnerIsRefused(t *testing.T) {
	t.Parallel()
	s := newScene(t, "fast", 1)
	s.poison(1)
	victim := s.worker("victim", crash.PauseVariable+"="+crash.GivingUp)
	victim.Paused()
	other := s.worker("other")
	other.Alone()
	s.Eventually(5, "SELECT count(*) FROM outbox_parked_events WHERE released_at IS NULL")
	s.mend()
	victim.Resume()
	victim.Says(lost...)
	victim.Terminate()
	ends(victim, t)
	require.Zero(t, s.Count("SELECT count(*) FROM outbox_dead_letters WHERE resolved_at IS NULL"), "a person's decision stands")
	s.Insert("A", "a.x", "key-1", 3)
	s.Drained()
	s.verdict()
}

func TestSequenceThatWentBackIsDealtWithWhoeverDies(t *testing.T) {
	t.Parallel()
	for _, how := range []string{crash.CrashVariable, crash.PauseVariable} {
		t.Run(strings.ToLower(how), func(t *testing.T) {
			t.Parallel()
			s := newScene(t, "fast", partitions)
			s.backlog(aFew)
			victim := s.worker("victim", how+"="+crash.SequenceReset)
			s.Drained()
			s.Eventually(2*partitions, "SELECT count(*) FROM outlane_lanes WHERE cursor = (SELECT max(seq) FROM outbox_events)")
			s.Exec("TRUNCATE outbox_events RESTART IDENTITY")
			for _, name := range []string{"A", "B"} { // what they hold has no rows any more
				stream, err := s.JS.Stream(t.Context(), name)
				require.NoError(t, err)
				require.NoError(t, stream.Purge(t.Context()))
			}
			s.produce()
			if how == crash.CrashVariable {
				died(victim, t)
			} else {
				victim.Paused()
			}
			other := s.worker("other")
			other.Alone()
			if how == crash.PauseVariable {
				s.stop()
				s.Drained()
				s.produce()
				victim.Resume()
				victim.Says(lost...)
				s.owners("victim", "other")
			}
			s.finish()
			s.verdict()
		})
	}
}
