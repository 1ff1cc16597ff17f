package model

import "slices"

// Kind is a kind of step.
type Kind uint8

// The kinds of step.
const (
	Join Kind = iota
	BuryGone
	Take
	See
	GainedAgain
	ReleaseDone
	Hand

	SendClaim
	Claim
	Activate
	CheckEpoch

	Read
	ReadOne
	LookAgain
	Store
	StoreLate
	DropLate
	Answer
	Refuse
	GiveUp
	DeadLetter
	Park
	BeginMark
	EndMark
	EndLateMark
	BeginSave
	EndSave
	Commit

	// From here on they are faults.

	Bury
	Crash
	Rebalance
	ReleaseTimesOut
	Edit
	EditKeepingVersion
	Cut
	TimeOut
	LoseClaim // Postgres has done it, and its answer is lost
	LoseDeadLetter
	LosePark
	LoseMark
	Mend
	Spoil
	Forget
	PersonRetries
	PersonSkips
)

func (k Kind) fault() bool { return k >= Bury }

// Step is one step of a run: by or to a member, on a partition, with a number that depends on the kind (an event, or a member).
type Step struct {
	Kind      Kind
	Member    int
	Partition int
	Number    int
}

// moves finds the steps that are possible in one state.
type moves struct {
	cfg  *Config
	from *State
	emit func(Step, *State) // what it gets is good until it returns
	next State
}

// take is a step that is possible, and what it does.
func (g *moves) take(step Step, change func(*State)) {
	if step.Kind.fault() {
		if g.from.Faults == 0 || len(g.cfg.Only) > 0 && !slices.Contains(g.cfg.Only, step.Kind) {
			return
		}
	}
	g.next = *g.from
	if step.Kind.fault() {
		g.next.Faults--
	}
	change(&g.next)
	g.emit(step, &g.next)
}

// on is a step of a member on a partition.
func (g *moves) on(kind Kind, m, p, number int, change func(q *Partition, o *Owner)) {
	g.take(Step{kind, m, p, number}, func(s *State) {
		q := &s.Partitions[p]
		change(q, &q.Owners[m-1])
	})
}

// all emits every step that is possible in from.
func (c *Config) all(from *State, emit func(Step, *State)) {
	g := &moves{cfg: c, from: from, emit: emit}
	for m := 1; m <= c.Members; m++ {
		g.membership(m)
		for p := range c.Partitions {
			g.lease(m, p)
			g.claim(m, p)
			g.publish(m, p)
			g.write(m, p)
		}
	}
	if from.Joined.has(c.gone()) && !c.has(DeadStay) {
		g.take(Step{Kind: BuryGone}, func(s *State) { s.Joined &^= SetOf(c.gone()) })
	}
	for p := range c.Partitions {
		g.left(p)
		g.people(p)
	}
}

// membership are a member's record, and the end of its process: another starts at once, with an identity of its own.
func (g *moves) membership(m int) {
	if !g.from.Joined.has(m) {
		g.take(Step{Kind: Join, Member: m}, func(s *State) { s.Joined |= SetOf(m) })
	} else {
		// It was seen not to renew: it is paused, or cut off, or somebody deleted its record.
		g.take(Step{Kind: Bury, Member: m}, func(s *State) { s.Joined &^= SetOf(m) })
	}
	g.take(Step{Kind: Crash, Member: m}, func(s *State) {
		if s.Joined.has(m) {
			s.Joined = s.Joined&^SetOf(m) | SetOf(g.cfg.gone())
		}
		for p := range g.cfg.Partitions {
			q := &s.Partitions[p]
			q.stop(g.cfg, m)
			q.Owners[m-1] = Owner{}
			q.Known &^= SetOf(m)
			if int(q.Holder) == m {
				q.Holder = uint8(g.cfg.gone())
			}
		}
	})
}

// lease is what the lease manager does with one partition; see lease/step.go. A manager acts on what it has seen, which may be old, and writes by
// compare-and-swap: what it does on an old view has no effect, so a view is taken when it is acted on. Which partitions a member wants is left
// open: it may take any that it may take, and give any.
func (g *moves) lease(m, p int) {
	q := &g.from.Partitions[p]
	o := &q.Owners[m-1]
	ours, known := int(q.Holder) == m, q.Known.has(m)

	switch o.Slot {
	case Idle:
		if ours {
			g.on(See, m, p, 0, func(q *Partition, o *Owner) { o.Slot, q.Known = Running, q.Known|SetOf(m) })
		} else if g.from.Joined.has(m) && (q.Holder == 0 || !g.from.Joined.has(int(q.Holder))) {
			g.on(Take, m, p, 0, func(q *Partition, _ *Owner) { q.Holder, q.Known = uint8(m), 0 })
		}
	case Running, Releasing:
		if !ours || !known {
			g.on(See, m, p, 0, func(q *Partition, o *Owner) {
				o.Slot, q.Known = Idle, q.Known&^SetOf(m)
				q.lost(g.cfg, m)
			})
		}
	case Drained:
		switch {
		case !ours:
			g.on(See, m, p, 0, func(q *Partition, o *Owner) { o.Slot, q.Known = Idle, q.Known&^SetOf(m) })
		case !known:
			g.on(See, m, p, 0, func(q *Partition, _ *Owner) { q.Known |= SetOf(m) })
		default:
			g.on(GainedAgain, m, p, 0, func(_ *Partition, o *Owner) { o.Slot = Running })
			for to := range g.cfg.gone() + 1 {
				if to != m && (to == 0 || g.from.Joined.has(to)) {
					g.on(Hand, m, p, to, func(q *Partition, _ *Owner) { q.Holder, q.Known = uint8(to), 0 })
				}
			}
		}
	}

	if o.Slot == Running {
		g.on(Rebalance, m, p, 0, func(_ *Partition, o *Owner) { o.Slot = Releasing })
	}
	if o.Slot == Releasing {
		kind := ReleaseDone
		if o.Phase == Active && (!o.quiet() || o.Save != 0) {
			kind = ReleaseTimesOut
		}
		g.on(kind, m, p, 0, func(q *Partition, o *Owner) {
			o.Slot = Drained
			q.lost(g.cfg, m)
		})
	}
}

// claim is how a partition that was gained comes to be worked on; see worker/ownership.go and store/claim.go.
func (g *moves) claim(m, p int) {
	o := &g.from.Partitions[p].Owners[m-1]
	switch o.Phase {
	case None:
		if o.Slot == Running {
			g.on(SendClaim, m, p, 0, func(_ *Partition, o *Owner) { o.Phase = Claiming })
		}
	case Claiming: // the lease may be another's by now
		g.on(LoseClaim, m, p, 0, func(q *Partition, _ *Owner) { q.raise(g.cfg.has(ClaimKeepsEpoch)) })
		g.on(Claim, m, p, 0, func(q *Partition, o *Owner) {
			q.raise(g.cfg.has(ClaimKeepsEpoch))
			o.Phase, o.Current, o.Newest = Claimed, true, true
			o.Seen = upto(int(q.Cursor))
			o.Blocked = q.Dead&g.cfg.Blocking != 0 || q.Parked != 0
		})
	case Claimed:
		g.on(Activate, m, p, 0, func(_ *Partition, o *Owner) {
			if o.Slot == Running {
				o.Phase = Active
			} else {
				*o = Owner{Slot: o.Slot} // it was given away meanwhile
			}
		})
	case Active:
		if !o.Current {
			g.on(CheckEpoch, m, p, 0, func(q *Partition, _ *Owner) { q.stop(g.cfg, m) })
		}
	}
}

// raise makes every epoch that was given out an old one. kept leaves them as they are.
func (q *Partition) raise(kept bool) {
	for i := range q.Owners {
		q.Owners[i].Newest = false
		if !kept {
			q.Owners[i].Current = false
		}
	}
}

// people are those who edit leases, mend and spoil streams, and decide about dead letters, and the passing of time.
func (g *moves) people(p int) {
	q := &g.from.Partitions[p]
	take := func(kind Kind, number int, change func(q *Partition)) {
		g.take(Step{Kind: kind, Partition: p, Number: number}, func(s *State) { change(&s.Partitions[p]) })
	}
	for to := range g.cfg.gone() + 1 {
		take(Edit, to, func(q *Partition) { q.Holder, q.Known = uint8(to), 0 })
		if to != int(q.Holder) {
			take(EditKeepingVersion, to, func(q *Partition) { q.Holder = uint8(to) })
		}
	}
	if g.cfg.Late > 0 && !q.Committed {
		take(Commit, g.cfg.Late, func(q *Partition) { q.Committed = true })
	}
	if g.cfg.Refused > 0 {
		kind := Spoil
		if q.Refusing {
			kind = Mend
		}
		take(kind, g.cfg.Refused, func(q *Partition) { q.Refusing = !q.Refusing })
	}
	if g.cfg.Window && q.stored()&^q.Forgotten != 0 {
		take(Forget, 0, func(q *Partition) { q.Forgotten = q.stored() })
	}
	for e := 1; e <= g.cfg.Events; e++ {
		if q.Dead.has(e) {
			take(PersonRetries, e, func(q *Partition) { q.decide(g.cfg, e, false) })
			take(PersonSkips, e, func(q *Partition) { q.decide(g.cfg, e, true) })
		}
	}
}

// decide is a person's decision about a dead letter, one transaction; see store/decide.go.
func (q *Partition) decide(cfg *Config, e int, skip bool) {
	q.Dead &^= SetOf(e)
	var again Set
	if cfg.Blocking.has(e) && q.Dead&cfg.Blocking == 0 {
		again, q.Parked = q.Parked, 0
	}
	if skip {
		q.Skipped |= SetOf(e)
		if !cfg.Strict {
			q.Excused |= SetOf(e)
		}
	} else {
		again |= SetOf(e)
	}
	if again != 0 {
		q.Cursor = min(q.Cursor, uint8(again.lowest()-1))
	}
	if again != 0 || cfg.Blocking.has(e) {
		q.raise(false)
	}
}
