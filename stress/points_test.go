package stress_test

import (
	"context"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/crash"
	"github.com/outlane/outlane/internal/pooltest"
)

// course is a way on which a worker, the victim, comes to a point. Another worker is to take over.
type course struct {
	point string // with ":n": at the n-th time
	when  string // for the test's name, if a point has several courses
	// first is whether the other worker is there first, and the victim joins it.
	first bool
	// provoke does what leads there, if work alone does not. It may start the other worker.
	provoke func(s *scene, victim *pooltest.Process, other func())
	sending bool // the way of publishing matters: both are tried
	ends    bool // the victim was told to end
	late    bool // a transaction that was open before the victim began is committed when the other worker has taken over
	backlog int  // of each key in each stream, more than a few
}

func poison(s *scene, _ *pooltest.Process, _ func()) { s.poison(1) }

func otherJoins(_ *scene, _ *pooltest.Process, other func()) { other() }

func stopped(_ *scene, victim *pooltest.Process, other func()) {
	other()
	victim.Terminate()
}

// courses lead to every point but SequenceReset, which has tests of its own.
var courses = []course{
	{point: crash.Claiming},
	{point: crash.Claiming, when: "joining", first: true},
	{point: crash.Claimed},
	{point: crash.Claimed, when: "joining", first: true},
	{point: crash.Claimed, when: "late_commit", late: true},
	{point: crash.Fetched, when: "first"},
	{point: crash.Fetched + ":3"},
	{point: crash.Fetched + ":5", when: "deep", backlog: 150},
	{point: crash.Checked, when: "first", sending: true},
	{point: crash.Checked + ":20", sending: true},
	{point: crash.Checked + ":20", when: "late_commit", late: true},
	{point: crash.Sending, sending: true},
	{point: crash.Sending + ":3", sending: true},
	{point: crash.Acknowledged, sending: true},
	{point: crash.Acknowledged + ":20", sending: true},
	{point: crash.Acknowledged + ":5", when: "joining", first: true, sending: true},
	{point: crash.Marking},
	{point: crash.Marking + ":10"},
	{point: crash.Marked},
	{point: crash.Marked + ":10"},
	{point: crash.Marked + ":5", when: "deep_and_late_commit", backlog: 150, late: true},
	{point: crash.GivingUp, provoke: poison},
	{point: crash.GaveUp, provoke: poison},
	{point: crash.Parked, provoke: poison},
	{point: crash.HorizonSaved},
	{point: crash.HorizonSaved + ":2"},
	{point: crash.CursorsSaved},
	{point: crash.CursorsSaved + ":2"},
	{point: crash.CursorsSaved, when: "deep", backlog: 300},
	{point: crash.Releasing, when: "to_a_newcomer", provoke: otherJoins},
	{point: crash.Releasing, when: "at_the_end", provoke: stopped, ends: true},
	{point: crash.Released, when: "to_a_newcomer", provoke: otherJoins},
	{point: crash.Released, when: "deep", provoke: otherJoins, backlog: 150},
	{point: crash.Released, when: "late_commit", provoke: otherJoins, late: true},
	{point: crash.Released + ":2", when: "late_commit_at_the_end", provoke: stopped, ends: true, late: true},
	{point: crash.Released + ":3", when: "at_the_end", provoke: stopped, ends: true},
}

// eachCourse runs test for every course, in parallel.
func eachCourse(t *testing.T, test func(t *testing.T, c course, mode string)) {
	t.Helper()
	run := func(c course, mode string) {
		name := strings.ReplaceAll(c.point, ":", "_") + "_" + mode
		if c.when != "" {
			name += "_" + c.when
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, c, mode)
		})
	}
	for i, c := range courses {
		if c.sending || i%2 == 0 {
			run(c, "fast")
		}
		if c.sending || i%2 == 1 {
			run(c, "sync")
		}
	}
}

// toThePoint leads a victim, started with setting, to the course's point. The other worker is there afterwards.
func (c course) toThePoint(s *scene, setting string, arrived func(victim *pooltest.Process)) (victim, other *pooltest.Process) {
	s.T.Helper()
	join := func() {
		if other == nil {
			other = s.worker("other")
		}
	}
	if c.first {
		join()
		s.Eventually(partitions, "SELECT count(*) FROM outlane_partitions WHERE owner LIKE 'other-%'")
	}
	s.backlog(max(c.backlog, aFew))
	if c.late {
		s.begin()
	}
	s.produce()
	victim = s.worker("victim", setting+"="+c.point)
	if c.provoke != nil {
		s.Eventually(1, "SELECT least(count(*), 1) FROM outbox_events WHERE processed")
		c.provoke(s, victim, join)
	}
	arrived(victim)
	join()
	return victim, other
}

func TestEveryPointHasACourse(t *testing.T) {
	t.Parallel()
	reached := map[string]bool{crash.SequenceReset: true}
	for _, c := range courses {
		for _, point := range crash.Points {
			if c.point == point || len(c.point) > len(point) && c.point[:len(point)+1] == point+":" {
				reached[point] = true
			}
		}
	}
	for _, point := range crash.Points {
		require.True(t, reached[point], point)
	}
}

func died(victim *pooltest.Process, t *testing.T) {
	t.Helper()
	_, by := victim.Ended()
	require.Equal(t, syscall.SIGKILL, by, "it comes to the point")
}

func TestCrashAtEveryPoint(t *testing.T) {
	t.Parallel()
	eachCourse(t, func(t *testing.T, c course, mode string) {
		s := newScene(t, mode, partitions)
		_, other := c.toThePoint(s, crash.CrashVariable, func(victim *pooltest.Process) { died(victim, t) })
		other.Alone()
		s.commit()
		s.finish()
		s.mend()
		s.verdict()
	})
}

func TestCursorsSavedWhileEventsWaitStayBehindThem(t *testing.T) {
	t.Parallel()
	holds := map[string]func(s *scene) (release func()){
		"for_their_mark": func(s *scene) func() {
			tx, err := s.DB.Begin(s.T.Context())
			require.NoError(s.T, err)
			_, err = tx.Exec(s.T.Context(), "SELECT FROM outbox_events ORDER BY seq LIMIT 1 FOR UPDATE")
			require.NoError(s.T, err)
			release := func() { _ = tx.Rollback(context.WithoutCancel(s.T.Context())) }
			s.T.Cleanup(release)
			return func() {
				// Or else the server would make the dead worker's mark after all.
				s.Exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE '%victim'")
				release()
			}
		},
		"for_their_stream": func(s *scene) func() {
			require.NoError(s.T, s.JS.DeleteStream(s.T.Context(), "B"))
			return func() { s.Stream("B", []string{"b.>"}) }
		},
	}
	for name, hold := range holds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, "fast", partitions)
			s.backlog(aFew)
			release := hold(s)
			s.produce()
			died(s.worker("victim", crash.CrashVariable+"="+crash.CursorsSaved), t)
			release()
			s.worker("other").Alone()
			s.finish()
			s.verdict()
		})
	}
}

func TestPointsOnACluster(t *testing.T) {
	t.Parallel()
	for _, how := range []string{crash.CrashVariable, crash.PauseVariable} {
		t.Run(strings.ToLower(how), func(t *testing.T) {
			t.Parallel()
			s := newClusteredScene(t, "fast")
			c := course{point: crash.Sending + ":5"}
			victim, other := c.toThePoint(s, how, func(victim *pooltest.Process) {
				if how == crash.CrashVariable {
					died(victim, t)
				} else {
					victim.Paused()
				}
			})
			other.Alone()
			if how == crash.PauseVariable {
				s.finish()
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
