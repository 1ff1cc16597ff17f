package model

import "slices"

// publish is a lane's publisher: it reads, sends, and takes what the stream says; see worker/fetch.go and worker/publish.go.
//
// Reading, asking for the epoch and sending are one step, although a process may be paused between them: the stream takes a batch message by message
// whenever it likes, so a batch whose first message has not been taken is one that has not been sent yet. And if the epoch still is ours when it is
// asked for, it was when the rows were read.
func (g *moves) publish(m, p int) {
	q := &g.from.Partitions[p]
	o := &q.Owners[m-1]
	switch {
	case o.Phase != Active:
	case o.Doing == Nothing && o.Slot == Running:
		g.read(m, p)
	case o.Doing == Sending && o.Rest == 0:
		g.on(Answer, m, p, 0, func(_ *Partition, o *Owner) { o.answered() })
	case o.Doing == Sending:
		g.sent(m, p)
	case o.Doing == GivingUp:
		g.on(DeadLetter, m, p, o.Batch.lowest(), func(q *Partition, _ *Owner) { q.giveUp(g.cfg, m, true) })
		g.on(LoseDeadLetter, m, p, o.Batch.lowest(), func(q *Partition, _ *Owner) { q.giveUp(g.cfg, m, false) })
	case o.Doing == Parking:
		g.on(Park, m, p, 0, func(q *Partition, _ *Owner) { q.park(g.cfg, m, true) })
		g.on(LosePark, m, p, 0, func(q *Partition, _ *Owner) { q.park(g.cfg, m, false) })
	}
	// Whoever waits for the stream may give up at any moment, or be cut off; what was sent may still come.
	if o.Doing == Sending {
		g.on(TimeOut, m, p, 0, func(q *Partition, o *Owner) {
			q.leave(g.cfg, o.Rest)
			o.Rest = o.Batch
			o.answered()
		})
	}
}

// read is a fetch, of all rows or of the first: those after it are read by the next one.
func (g *moves) read(m, p int) {
	q := &g.from.Partitions[p]
	o := &q.Owners[m-1]
	looked := g.cfg.visible(q)
	rows := looked &^ q.settled() &^ o.Seen
	if g.cfg.has(CursorPassesHorizon) {
		looked = upto(g.cfg.Events)
	}
	if rows == 0 {
		if looked&^o.Seen != 0 {
			g.on(LookAgain, m, p, 0, func(_ *Partition, o *Owner) { o.Seen |= looked })
		}
		return
	}
	g.on(Read, m, p, 0, func(q *Partition, _ *Owner) { q.begin(g.cfg, m, rows, looked) })
	if one := SetOf(rows.lowest()); one != rows {
		g.on(ReadOne, m, p, 0, func(q *Partition, _ *Owner) { q.begin(g.cfg, m, one, looked&upto(one.lowest())) })
	}
}

// begin takes rows in hand.
func (q *Partition) begin(cfg *Config, m int, rows, looked Set) {
	o := &q.Owners[m-1]
	verify := cfg.Blocking != 0 && !cfg.has(BlockUnverified)
	if cfg.has(BlockByOwnRoute) {
		verify = rows&cfg.Blocking != 0
	}
	if verify && !o.Current {
		q.stop(cfg, m)
		return
	}
	o.Seen |= looked
	o.Batch = rows
	if o.Blocked {
		o.Doing = Parking
		return
	}
	o.Doing, o.Rest = Sending, rows
}

// sent is what the stream does with a batch, and what it says about it.
func (g *moves) sent(m, p int) {
	q := &g.from.Partitions[p]
	o := &q.Owners[m-1]
	e := o.next(g.cfg, q)
	if !q.refuses(g.cfg, e) {
		g.on(Store, m, p, e, func(q *Partition, o *Owner) {
			o.Rest &^= SetOf(e)
			q.store(g.cfg, e)
		})
	} else {
		g.on(Refuse, m, p, e, func(q *Partition, o *Owner) {
			o.answered()
			if !o.Current { // the attempt cannot be noted
				q.stop(g.cfg, m)
			}
		})
		g.on(GiveUp, m, p, e, func(_ *Partition, o *Owner) {
			rest := o.Rest
			o.answered()
			o.Doing, o.Batch, o.Seen = GivingUp, rest, o.Seen|rest
		})
	}
	g.on(Cut, m, p, 0, func(_ *Partition, o *Owner) { o.answered() })
}

// next is the message of o's batch that the stream takes next. It ends a batch at the first one that it refuses.
func (o *Owner) next(cfg *Config, q *Partition) int {
	if others := o.Rest &^ SetOf(cfg.Refused); cfg.has(BatchGoesOn) && q.Refusing && others != 0 {
		return others.lowest()
	}
	return o.Rest.lowest()
}

// answered takes how far the batch came. The rest is read again.
func (o *Owner) answered() {
	o.Marking |= o.Batch &^ o.Rest
	o.Seen &^= o.Rest
	o.Doing, o.Batch, o.Rest = Nothing, 0, 0
}

// giveUp is m's dead letter, for the first event of its batch. The rest is read again.
func (q *Partition) giveUp(cfg *Config, m int, heard bool) {
	o := &q.Owners[m-1]
	e := o.Batch.lowest()
	o.Seen &^= o.Batch
	o.Doing, o.Batch = Nothing, 0
	if !q.decides(cfg, m) {
		return
	}
	q.Dead |= SetOf(e)
	if !cfg.Blocking.has(e) {
		q.Excused |= SetOf(e)
	}
	switch {
	case heard:
		o.Seen |= SetOf(e)
		o.Blocked = o.Blocked || cfg.Blocking.has(e)
	case cfg.Blocking.has(e) && !cfg.has(DoubtGoesOn):
		q.stop(cfg, m) // and claims anew, which tells it what is blocked
	}
}

// park sets m's batch aside.
func (q *Partition) park(cfg *Config, m int, heard bool) {
	o := &q.Owners[m-1]
	batch := o.Batch
	o.Doing, o.Batch = Nothing, 0
	if !q.decides(cfg, m) {
		return
	}
	q.Parked |= batch
	if !heard {
		o.Seen &^= batch
	}
}

// decides says whether a decision of m's takes effect: the partition's row is locked while the epoch is looked at, so it is one step with it.
func (q *Partition) decides(cfg *Config, m int) bool {
	o := &q.Owners[m-1]
	if !o.Current && !cfg.has(DecisionUnchecked) {
		q.stop(cfg, m)
		return false
	}
	q.old(cfg, o, OldDecision)
	return true
}

// write is what is written about events behind the publisher's back; see worker/mark.go, worker/save.go, store/mark.go and store/claim.go.
func (g *moves) write(m, p int) {
	q := &g.from.Partitions[p]
	o := &q.Owners[m-1]
	// A mark looks at the epoch in its snapshot, without a lock, and may take effect after the next claim.
	if o.Marking != 0 && o.Statement == 0 {
		g.on(BeginMark, m, p, 0, func(q *Partition, o *Owner) {
			if !o.Current && !g.cfg.has(MarkUnchecked) {
				q.stop(g.cfg, m)
				return
			}
			q.old(g.cfg, o, OldMark)
			if !g.cfg.Slow {
				q.Marked, o.Marking = q.Marked|o.Marking, 0
			}
			o.Statement, o.Marking = o.Marking, 0
		})
	}
	if o.Marking != 0 && o.Statement == 0 && o.Current {
		g.on(LoseMark, m, p, 0, func(q *Partition, o *Owner) { q.Marked |= o.Marking })
	}
	if o.Statement != 0 {
		g.on(EndMark, m, p, 0, func(q *Partition, o *Owner) { q.Marked, o.Statement = q.Marked|o.Statement, 0 })
	}
	// A save locks the partition's row and looks at the epoch, so it takes effect at one moment; but the cursor was computed before.
	if o.Phase == Active && o.Save == 0 && (o.Slot == Running || o.quiet()) {
		if c := o.cursor(g.cfg, q); c > int(q.Cursor) {
			g.on(BeginSave, m, p, c, func(q *Partition, o *Owner) {
				o.Save = uint8(c + 1)
				if !g.cfg.Slow {
					q.save(g.cfg, m)
				}
			})
		}
	}
	if o.Save != 0 {
		g.on(EndSave, m, p, int(o.Save-1), func(q *Partition, _ *Owner) { q.save(g.cfg, m) })
	}
}

// old notes it as a fault if o, whose write takes effect, is not the newest owner.
func (q *Partition) old(cfg *Config, o *Owner, f Fault) {
	if !o.Newest && !slices.Contains(cfg.Tolerated, f) {
		q.Fault = f
	}
}

// save is m's save.
func (q *Partition) save(cfg *Config, m int) {
	o := &q.Owners[m-1]
	c := o.Save - 1
	o.Save = 0
	if !o.Current && !cfg.has(CursorUnchecked) {
		q.stop(cfg, m)
		return
	}
	q.old(cfg, o, OldCursor)
	q.Cursor = c
}

// cursor is the number at or under which o knows everything to be settled.
func (o *Owner) cursor(cfg *Config, q *Partition) int {
	known := o.Seen
	if !cfg.has(CursorPassesUnsent) {
		known &^= o.Batch | o.Marking | o.Statement
	}
	end := cfg.horizon(q)
	if cfg.has(CursorPassesHorizon) {
		end = cfg.Events
	}
	c := 0
	for c < end && known.has(c+1) {
		c++
	}
	return c
}

// left is what becomes of what nobody waits for: batches go on, or are dropped, and marks take effect.
func (g *moves) left(p int) {
	if g.from.Partitions[p].LateMarks != 0 {
		g.take(Step{Kind: EndLateMark, Partition: p}, func(s *State) {
			q := &s.Partitions[p]
			q.Marked, q.LateMarks = q.Marked|q.LateMarks, 0
		})
	}
	for i, rest := range g.from.Partitions[p].Late {
		if rest == 0 {
			continue
		}
		e := rest.lowest()
		g.take(Step{Kind: StoreLate, Partition: p, Number: e}, func(s *State) {
			q := &s.Partitions[p]
			if q.refuses(g.cfg, e) {
				q.Late[i] = 0
			} else {
				q.Late[i] &^= SetOf(e)
				q.store(g.cfg, e)
			}
			q.sort()
		})
		g.take(Step{Kind: DropLate, Partition: p, Number: e}, func(s *State) {
			s.Partitions[p].Late[i] = 0
			s.Partitions[p].sort()
		})
	}
}

func (q *Partition) refuses(cfg *Config, e int) bool { return q.Refusing && e == cfg.Refused }

// store is what the stream does with a message that it takes.
func (q *Partition) store(cfg *Config, e int) {
	for i, have := range q.Stream {
		switch {
		case have == 0:
			q.Stream[i] = uint8(e)
			return
		case int(have) != e:
		case q.Forgotten.has(e):
			q.Twice, q.Forgotten = q.Twice|SetOf(e), q.Forgotten&^SetOf(e)
			return
		default:
			if cfg.has(NoDeduplication) {
				q.Fault = Doubled
			}
			return
		}
	}
}

// leave makes a batch one that nobody waits for. There is room for a few; of one more, the rest is lost, as it may be at any time.
func (q *Partition) leave(cfg *Config, rest Set) {
	if cfg.Batches > 0 {
		q.Late[cfg.Batches-1] = max(q.Late[cfg.Batches-1], rest)
		q.sort()
	}
}

func (q *Partition) sort() {
	if q.Late[0] < q.Late[1] {
		q.Late[0], q.Late[1] = q.Late[1], q.Late[0]
	}
}
