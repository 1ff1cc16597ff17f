package lease

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// bench drives a judge by a clock of its own.
type bench struct {
	*judge
	now     time.Time
	members map[string]Member
}

const beat = 100 * time.Millisecond

func newBench(members ...Member) *bench {
	b := &bench{judge: newJudge("me", 10*time.Second, beat), now: time.Unix(0, 0), members: map[string]Member{}}
	for _, m := range members {
		m.Renewal = "0"
		b.members[m.ID] = m
	}
	b.update()
	return b
}

func (b *bench) update() {
	all := []Member{}
	for _, m := range b.members {
		all = append(all, m)
	}
	b.observe(b.now, all)
}

// pass lets time go by with the updates of a watch that is healthy, which say that nothing has changed.
func (b *bench) pass(d time.Duration) {
	for end := b.now.Add(d); b.now.Before(end); {
		b.now = b.now.Add(beat)
		b.observe(b.now, nil)
	}
}

// cut lets time go by without updates.
func (b *bench) cut(d time.Duration) { b.now = b.now.Add(d) }

func (b *bench) change(id string, f func(*Member)) {
	m := b.members[id]
	f(&m)
	b.members[id] = m
	b.update()
}

func (b *bench) dead() []string {
	ids := []string{}
	dead, _ := b.silent()
	for _, m := range dead {
		ids = append(ids, m.ID)
	}
	return ids
}

func TestASilentMemberIsDeadAfterItsOwnDuration(t *testing.T) {
	t.Parallel()
	b := newBench(Member{ID: "quick", Duration: 2 * time.Second}, Member{ID: "slow", Duration: 30 * time.Second}, Member{ID: "me", Duration: time.Second})
	b.pass(2*time.Second - beat)
	require.Empty(t, b.dead())
	b.pass(beat)
	require.Equal(t, []string{"quick"}, b.dead(), "ours is shorter and slow's is longer")
	b.pass(26 * time.Second)
	require.Equal(t, []string{"quick"}, b.dead(), "still, until its record is gone")
	delete(b.members, "quick")
	b.update()
	require.Empty(t, b.dead())
	b.pass(2 * time.Second)
	require.Equal(t, []string{"slow"}, b.dead(), "and never ourselves")
}

func TestARenewalBeginsTheMeasurementAnew(t *testing.T) {
	t.Parallel()
	b := newBench(Member{ID: "a", Duration: 2 * time.Second})
	for renewal := range 5 {
		b.pass(2*time.Second - beat)
		b.change("a", func(m *Member) { m.Renewal = string(rune('a' + renewal)) })
	}
	require.Empty(t, b.dead())
	b.pass(time.Second)
	b.change("a", func(m *Member) { m.Leaving = true })
	b.pass(time.Second)
	require.Equal(t, []string{"a"}, b.dead(), "another change of the record is no renewal")
}

func TestAGapInOnesOwnViewBeginsTheMeasurementAnew(t *testing.T) {
	t.Parallel()
	b := newBench(Member{ID: "quick", Duration: 2 * time.Second}, Member{ID: "slow", Duration: 40 * time.Second})
	b.pass(time.Second)
	b.cut(time.Second)
	b.pass(beat)
	b.pass(2*time.Second - beat)
	require.Empty(t, b.dead(), "it was not watched when it should have renewed")
	b.pass(beat)
	require.Equal(t, []string{"quick"}, b.dead())

	b.pass(40*time.Second - 4100*time.Millisecond)
	require.Equal(t, []string{"quick", "slow"}, sorted(b.dead()), "a gap that is short against the duration changes nothing")

	b = newBench(Member{ID: "slow", Duration: 40 * time.Second})
	b.cut(24 * time.Hour)
	b.pass(beat)
	require.Empty(t, b.dead(), "as after a machine was suspended")
	b.cut(24 * time.Hour)
	require.Empty(t, b.dead(), "time without an update is no evidence")
}

func sorted(ids []string) []string {
	if len(ids) == 2 && ids[0] > ids[1] {
		return []string{ids[1], ids[0]}
	}
	return ids
}

func TestAMemberThatComesAgainIsAnother(t *testing.T) {
	t.Parallel()
	b := newBench(Member{ID: "a", Duration: 2 * time.Second})
	b.pass(time.Second + 900*time.Millisecond)
	a := b.members["a"]
	delete(b.members, "a")
	b.update()
	b.members["a"] = a
	b.update()
	b.pass(time.Second)
	require.Empty(t, b.dead())
}

func TestDurationsThatMakeNoSense(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ given, held time.Duration }{
		"zero":     {0, 10 * time.Second},
		"negative": {-time.Second, 10 * time.Second},
		"tiny":     {1, minDuration},
		"huge":     {1<<63 - 1, maxDuration},
		"usual":    {30 * time.Second, 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.held, newBench().duration(Member{Duration: test.given}))
		})
	}
}

func TestADeathThatWasPostponed(t *testing.T) {
	t.Parallel()
	b := newBench(Member{ID: "a", Duration: 2 * time.Second})
	b.pass(2 * time.Second)
	require.Equal(t, []string{"a"}, b.dead())
	b.postpone("a", b.now.Add(time.Second))
	require.Empty(t, b.dead())
	_, later := b.silent()
	require.True(t, later)
	b.pass(time.Second)
	require.Equal(t, []string{"a"}, b.dead())
	b.postpone("nobody", b.now)
}
