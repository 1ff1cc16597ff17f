package model

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var large = flag.Bool("large", false, "explore the large worlds too, which takes a minute or two and a gigabyte")

// most is more states than any world here has.
const most = 20_000_000

// explore is Explore, with what it found in the test's log.
func explore(t *testing.T, cfg Config) Result {
	t.Helper()
	res, err := Explore(cfg, most)
	require.NoError(t, err)
	t.Logf("%d states, %d steps between them, the farthest %d steps away", res.States, res.Steps, res.Depth)
	if res.Violation != nil {
		t.Log("\n" + res.Violation.Text(&cfg))
	}
	return res
}

var (
	leases  = []Kind{Bury, Crash, Rebalance, ReleaseTimesOut, Edit, EditKeepingVersion}
	streams = []Kind{Bury, Crash, Cut, TimeOut, Edit}
	letters = []Kind{Edit, TimeOut, LoseClaim, LoseDeadLetter, LosePark, LoseMark, Mend, Spoil, PersonRetries, PersonSkips}
)

type world struct {
	name  string
	large bool
	cfg   Config
}

var worlds = []world{
	{"leases edited by anybody", false, Config{Members: 3, Partitions: 1, Events: 1, Faults: 1, Batches: 1, Only: leases}},
	{"statements under way for any time", false, Config{Members: 2, Partitions: 1, Events: 1, Faults: 1, Batches: 1, Slow: true}},
	{"batches under way for any time", false, Config{Members: 2, Partitions: 1, Events: 2, Faults: 1, Batches: 1, Only: []Kind{Bury, Crash, Cut, TimeOut}}},
	{"a transaction that commits late", false, Config{Members: 2, Partitions: 1, Events: 2, Late: 1, Faults: 1, Only: streams}},
	{"dead letters that block", false, Config{Members: 2, Partitions: 1, Events: 2, Refused: 1, Blocking: SetOf(1, 2), Faults: 1, Batches: 1, Only: letters}},
	{"dead letters that do not block", false, Config{Members: 2, Partitions: 1, Events: 2, Refused: 1, Faults: 1, Batches: 1, Only: letters}},
	{"two partitions", false, Config{Members: 2, Partitions: 2, Events: 1, Faults: 1, Only: []Kind{Crash, Rebalance}}},
	{"a duplicate window that passes", false, Config{Members: 2, Partitions: 1, Events: 2, Faults: 2, Batches: 1, Window: true, Only: []Kind{Crash, TimeOut, Forget}}},

	{"leases edited twice", true, Config{Members: 3, Partitions: 1, Events: 1, Faults: 2, Batches: 1, Only: leases}},
	{"everything slow, two events", true, Config{Members: 2, Partitions: 1, Events: 2, Faults: 1, Batches: 2, Slow: true}},
	{"everything slow, two faults", true, Config{Members: 2, Partitions: 1, Events: 1, Faults: 2, Batches: 2, Slow: true}},
	{"three events", true, Config{Members: 2, Partitions: 1, Events: 3, Faults: 1, Batches: 1, Only: streams}},
	{"three faults of streams", true, Config{Members: 2, Partitions: 1, Events: 2, Faults: 3, Batches: 2, Only: streams}},
	{"a late commit and two faults", true, Config{Members: 2, Partitions: 1, Events: 2, Late: 1, Faults: 2, Batches: 1, Only: streams}},
	{"a late commit between two events", true, Config{Members: 2, Partitions: 1, Events: 3, Late: 2, Faults: 1, Only: []Kind{Bury, Crash, Cut, TimeOut}}},
	{"dead letters that block, three faults", true, Config{Members: 2, Partitions: 1, Events: 2, Refused: 1, Blocking: SetOf(1, 2), Faults: 3, Batches: 1, Only: letters}},
	{"dead letters that do not block, three faults", true, Config{Members: 2, Partitions: 1, Events: 2, Refused: 1, Faults: 3, Batches: 1, Only: letters}},
	{"a dead letter in the middle of three", true, Config{Members: 2, Partitions: 1, Events: 3, Refused: 2, Blocking: SetOf(1, 2, 3), Faults: 2, Only: letters}},
	{"all faults there are, two of them", true, Config{Members: 2, Partitions: 1, Events: 2, Refused: 1, Blocking: SetOf(1, 2), Faults: 2, Batches: 1, Window: true}},
	{"all faults there are, three of them", true, Config{Members: 2, Partitions: 1, Events: 2, Refused: 1, Blocking: SetOf(1, 2), Faults: 3, Batches: 1, Window: true}},
	{"three members and two events", true, Config{Members: 3, Partitions: 1, Events: 2, Faults: 1, Batches: 1, Only: streams}},
	{"three events and two faults", true, Config{Members: 2, Partitions: 1, Events: 3, Faults: 2, Batches: 1, Only: []Kind{Bury, Crash, Cut, TimeOut}}},
	{"two partitions, any fault, twice", true, Config{Members: 2, Partitions: 2, Events: 1, Faults: 2}},
	{"two partitions, any fault", true, Config{Members: 2, Partitions: 2, Events: 1, Faults: 1}},
}

func TestModelHoldsInEveryState(t *testing.T) {
	page, err := os.ReadFile("../../docs/protocol.md")
	require.NoError(t, err)
	for _, w := range worlds {
		if w.large && !*large {
			continue
		}
		t.Run(w.name, func(t *testing.T) {
			res := explore(t, w.cfg)
			require.Nil(t, res.Violation)
			said := fmt.Sprintf("| %s | %s |", grouped(res.States), grouped(res.Steps))
			require.True(t, strings.Contains(string(page), said), "docs/protocol.md says something else than %s", said)
		})
	}
}

// grouped is n with commas.
func grouped(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%s,%03d", grouped(n/1000), n%1000)
}

func TestModelFindsWhatIsLeftOut(t *testing.T) {
	one := Config{Members: 2, Partitions: 1, Events: 1, Faults: 1, Batches: 1}
	two := Config{Members: 2, Partitions: 1, Events: 2, Faults: 1, Batches: 1}
	for _, test := range []struct {
		name string
		bug  Bug
		cfg  Config
		more func(*Config)
		want Fault
	}{
		{"mark", MarkUnchecked, one, nil, OldMark},
		{"decision", DecisionUnchecked, two, func(c *Config) { c.Refused, c.Blocking = 1, SetOf(1, 2) }, OldDecision},
		// The harm: what waits behind a dead letter that was decided about is set aside once more, for ever.
		{"decision, its harm", DecisionUnchecked, two, func(c *Config) {
			c.Refused, c.Blocking, c.Only, c.Tolerated = 1, SetOf(1, 2), []Kind{PersonSkips}, []Fault{OldDecision}
		}, ParkedForEver},
		{"cursor", CursorUnchecked, one, nil, OldCursor},
		// The harm: an event that a person has given back is behind the cursor, and never read.
		{"cursor, its harm", CursorUnchecked, one, func(c *Config) { c.Refused, c.Tolerated = 1, []Fault{OldCursor} }, CursorTooFar},
		{"claim", ClaimKeepsEpoch, one, nil, TwoEpochs},
		{"claim, its harm", ClaimKeepsEpoch, one, func(c *Config) { c.Tolerated = []Fault{TwoEpochs} }, OldMark},
		{"duplicates", NoDeduplication, two, func(c *Config) { c.Only = []Kind{Bury} }, Doubled}, // checked, paused, sent
		{"cursor and what is unsettled", CursorPassesUnsent, two, func(c *Config) { c.Faults = 0 }, CursorTooFar},
		{"cursor and the horizon", CursorPassesHorizon, two, func(c *Config) { c.Late, c.Faults = 1, 0 }, CursorTooFar},
		{"batch", BatchGoesOn, two, func(c *Config) { c.Refused, c.Blocking, c.Only = 1, SetOf(1, 2), []Kind{Mend} }, OutOfOrder},
		{"the dead stay", DeadStay, one, func(c *Config) { c.Only = []Kind{Crash} }, Stuck},
		{"doubt", DoubtGoesOn, two, func(c *Config) {
			c.Refused, c.Blocking, c.Faults, c.Batches, c.Only = 1, SetOf(1, 2), 3, 0, []Kind{LoseDeadLetter, Mend, PersonRetries}
		}, OutOfOrder},
		{"unverified", BlockUnverified, two, func(c *Config) {
			c.Refused, c.Blocking, c.Faults, c.Batches, c.Only = 1, SetOf(1, 2), 3, 0, []Kind{Bury, Mend, PersonRetries}
		}, OutOfOrder},
		{"own route", BlockByOwnRoute, two, func(c *Config) {
			c.Refused, c.Blocking, c.Faults, c.Batches, c.Only = 1, SetOf(1), 3, 0, []Kind{Bury, Mend, PersonRetries}
		}, OutOfOrder},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := test.cfg
			if test.more != nil {
				test.more(&cfg)
			}
			if cfg.Faults < 3 { // more are among the large worlds
				require.Nil(t, explore(t, cfg).Violation, "by the rules")
			}
			cfg.Bugs = []Bug{test.bug}
			run := explore(t, cfg).Violation
			require.NotNil(t, run)
			require.Equal(t, test.want.String(), run.Fault.String())
		})
	}
}

// A mark says what the stream has said. So the epoch that it checks keeps nothing from going wrong; it stops an owner that is none any more.
func TestModelSaysThatMarksAreFactsWhoeverWritesThem(t *testing.T) {
	cfg := Config{Members: 2, Partitions: 1, Events: 2, Refused: 1, Blocking: SetOf(1, 2), Faults: 1, Batches: 1, Only: letters,
		Bugs: []Bug{MarkUnchecked}, Tolerated: []Fault{OldMark}}
	require.Nil(t, explore(t, cfg).Violation)
}

// A limit, and not a bug: nothing keeps a stream from taking what was sent before a person decided that it shall not be sent.
func TestModelShowsThatASkippedEventMayStillCome(t *testing.T) {
	cfg := Config{Members: 2, Partitions: 1, Events: 2, Refused: 1, Blocking: SetOf(1, 2), Faults: 3, Only: []Kind{Bury, Mend, PersonSkips}, Strict: true}
	run := explore(t, cfg).Violation
	require.NotNil(t, run)
	require.Equal(t, OutOfOrder, run.Fault)
	last := run.Steps[len(run.Steps)-1]
	skip := slices.IndexFunc(run.Steps, func(s Step) bool { return s.Kind == PersonSkips })
	require.Equal(t, last.Number, run.Steps[skip].Number)
	require.Less(t, skip, len(run.Steps)-1)
}

func TestModelTellsARun(t *testing.T) {
	cfg := Config{Members: 2, Partitions: 1, Events: 1, Faults: 1, Batches: 1, Only: []Kind{Edit}, Bugs: []Bug{CursorUnchecked}}
	text := explore(t, cfg).Violation.Text(&cfg)
	require.Contains(t, text, "somebody writes B into the lease  (fault)")
	require.Contains(t, text, "B has claimed it: epoch 2, cursor 0")
	require.Contains(t, text, "A, epoch 1, saves cursor 1")
	require.Contains(t, text, "so: a cursor was saved by an owner of an older claim")
}

func TestModelSaysWhenAWorldIsTooLarge(t *testing.T) {
	res, err := Explore(Config{Members: 2, Partitions: 1, Events: 1, Faults: 1}, 100)
	require.ErrorContains(t, err, "more than 100 states")
	require.Nil(t, res.Violation)
}
