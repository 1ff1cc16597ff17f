package model

import (
	"fmt"
	"strings"
)

// Text tells the run, a line for each step, with what others can see of the partition after it where that has changed.
func (r *Run) Text(cfg *Config) string {
	var b strings.Builder
	var t teller
	for i, step := range r.Steps {
		before, after := &r.States[i], &r.States[i+1]
		line := t.step(cfg, step, before, after)
		if cfg.Partitions > 1 && step.Kind != Join && step.Kind != Bury && step.Kind != BuryGone && step.Kind != Crash {
			line = fmt.Sprintf("partition %d: %s", step.Partition, line)
		}
		if step.Kind.fault() {
			line += "  (fault)"
		}
		q := &after.Partitions[step.Partition]
		if seen := q.text(cfg); seen != before.Partitions[step.Partition].text(cfg) {
			line = fmt.Sprintf("%-72s %s", line, seen)
		}
		fmt.Fprintf(&b, "%3d  %s\n", i+1, line)
	}
	fmt.Fprintf(&b, "     so: %s\n", r.Fault)
	return b.String()
}

// teller gives epochs their numbers, which states do not have.
type teller struct {
	last [maxPartitions]int
	has  [maxPartitions][maxMembers]int
}

var texts = map[Kind]string{
	Join:               "%m joins the pool",
	Bury:               "the record of %m is removed: it was silent, or somebody deleted it",
	BuryGone:           "the record of the member that is no more is removed",
	Crash:              "%m crashes; a new process takes its place",
	Take:               "%m takes the lease",
	GainedAgain:        "%m keeps what it has drained: it is wanted there again",
	Rebalance:          "%m is to give the partition away and starts to drain it",
	ReleaseDone:        "%m has drained the partition",
	ReleaseTimesOut:    "%m has waited long enough for what is under way",
	SendClaim:          "%m asks Postgres for the partition",
	Claim:              "%m has claimed it: epoch %e, cursor %c",
	Activate:           "%m starts, if the lease is still its own",
	CheckEpoch:         "%m asks for the epoch, which is not its own, and stops",
	LookAgain:          "%m looks and finds nothing that it must send",
	Refuse:             "the stream refuses event %n of %m's batch; %m will try again",
	GiveUp:             "the stream refuses event %n of %m's batch; %m gives it up",
	Answer:             "%m hears that its batch is stored",
	TimeOut:            "%m gives up waiting for the stream and knows nothing",
	Cut:                "%m hears that its batch ended early",
	DropLate:           "a batch that nobody waits for: the stream drops it before event %n",
	EndLateMark:        "a mark that nobody waits for takes effect",
	EndMark:            "the mark of %m takes effect",
	Commit:             "the transaction of event %n commits",
	Mend:               "the stream takes event %n from now on",
	Spoil:              "the stream refuses event %n from now on",
	Forget:             "the duplicate window passes",
	PersonRetries:      "a person retries event %n",
	PersonSkips:        "a person skips event %n",
	Edit:               "somebody writes %h into the lease",
	EditKeepingVersion: "somebody writes %h into the lease and leaves its version as it was",
	LoseClaim:          "Postgres does what %m has asked for: epoch %e; the answer is lost",
	LoseMark:           "Postgres does a mark of %m, epoch %e; the answer is lost",
	Hand:               "%m hands the lease to %h",
}

func (t *teller) step(cfg *Config, s Step, before, after *State) string {
	p := s.Partition
	was, is := &before.Partitions[p], &after.Partitions[p]
	text, ok := texts[s.Kind]
	if (s.Kind == Claim || s.Kind == LoseClaim) && !cfg.has(ClaimKeepsEpoch) || s.Kind == PersonRetries || s.Kind == PersonSkips && cfg.Blocking.has(s.Number) {
		t.last[p]++
	}
	var old, own *Owner
	var epoch int
	if s.Member > 0 {
		old, own = &was.Owners[s.Member-1], &is.Owners[s.Member-1]
		if s.Kind == Claim || s.Kind == LoseClaim {
			t.has[p][s.Member-1] = t.last[p]
		}
		epoch = t.has[p][s.Member-1]
	}
	if !ok {
		text = other(s, old, own, was, is)
	}
	return strings.NewReplacer("%m", cfg.name(s.Member), "%n", fmt.Sprint(s.Number), "%h", cfg.name(s.Number), "%e", fmt.Sprint(epoch),
		"%c", fmt.Sprint(is.Cursor)).Replace(text)
}

// other tells steps whose outcome depends.
func other(s Step, old, own *Owner, was, is *Partition) string {
	if s.Kind == Store || s.Kind == StoreLate {
		batch := "%m's batch"
		if s.Kind == StoreLate {
			batch = "a batch that nobody waits for"
		}
		if was.stored().has(s.Number) && was.Twice == is.Twice && is.Fault != Doubled {
			return "the stream passes over event %n of " + batch + ": it has it"
		}
		return "the stream stores event %n of " + batch
	}
	stopped := own.Phase == None
	switch s.Kind {
	case See:
		switch own.Slot {
		case Running:
			return "%m sees that the lease names it"
		case Idle:
			return "%m sees that the lease is not its own any more"
		}
		return "%m sees that the lease has changed"
	case Read, ReadOne:
		switch {
		case stopped:
			return "%m reads, asks for the epoch, which is not its own, and stops"
		case own.Doing == Parking:
			return fmt.Sprintf("%%m reads %v, whose key is blocked", own.Batch)
		}
		return fmt.Sprintf("%%m, epoch %%e, reads %v and sends it", own.Batch)
	case DeadLetter, LoseDeadLetter:
		return "%m, epoch %e, makes event %n a dead letter" + outcome(was.Dead == is.Dead, s.Kind == LoseDeadLetter)
	case Park, LosePark:
		return fmt.Sprintf("%%m, epoch %%e, parks %v", old.Batch) + outcome(was.Parked == is.Parked, s.Kind == LosePark)
	case BeginMark:
		switch {
		case stopped:
			return fmt.Sprintf("%%m, epoch %%e, marks %v: refused, it stops", old.Marking)
		case own.Statement != 0:
			return fmt.Sprintf("%%m, epoch %%e, marks %v: the epoch holds", old.Marking)
		}
		return fmt.Sprintf("%%m, epoch %%e, marks %v", old.Marking)
	case BeginSave, EndSave:
		switch {
		case stopped:
			return "%m, epoch %e, saves cursor %n: refused, it stops"
		case own.Save != 0:
			return "%m is about to save cursor %n"
		}
		return "%m, epoch %e, saves cursor %n"
	}
	return "?"
}

func outcome(refused, lost bool) string {
	switch {
	case refused:
		return ": refused"
	case lost:
		return ": it is written, the answer is lost"
	}
	return ""
}

// name of a member.
func (c *Config) name(m int) string {
	switch {
	case m == 0:
		return "nobody"
	case m == c.gone():
		return "one that is no more"
	}
	return string(rune('A' + m - 1))
}

func (s Set) String() string {
	var list []string
	for n := 1; n < 8; n++ {
		if s.has(n) {
			list = append(list, fmt.Sprint(n))
		}
	}
	return "{" + strings.Join(list, " ") + "}"
}

// text is what others can see of a partition.
func (q *Partition) text(cfg *Config) string {
	var list []string
	for _, e := range q.Stream {
		if e > 0 {
			list = append(list, fmt.Sprint(e))
		}
	}
	text := fmt.Sprintf("lease: %s; stream: [%s]; marked: %v; cursor: %d", cfg.name(int(q.Holder)), strings.Join(list, " "), q.Marked, q.Cursor)
	for _, one := range []struct {
		name string
		set  Set
	}{{"dead", q.Dead}, {"parked", q.Parked}, {"skipped", q.Skipped}, {"twice", q.Twice}} {
		if one.set != 0 {
			text += fmt.Sprintf("; %s: %v", one.name, one.set)
		}
	}
	return text
}
