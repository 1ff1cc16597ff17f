package verify

import (
	"context"
	"fmt"
	"time"

	"github.com/outlane/outlane/internal/history"
	"github.com/outlane/outlane/store"
)

const (
	// enough suspects are looked up together.
	enough = 1000
	// mostJudged bounds the events out of order that are looked at again; beyond it they are taken as they are.
	mostJudged = 10_000
	// recheckEvery is how often unmarked events are looked at while they may still be marked.
	recheckEvery = 250 * time.Millisecond
)

// suspects are faults that may be none: the table is read before the streams, and both change.
type suspects struct {
	store     *store.Store
	first     int
	settleFor time.Duration

	unknown  []history.Fault // messages without an event so far
	fresh    []history.Fault // stored and not marked when the table was read
	stale    []history.Fault // and not marked when they were looked at again
	disorder []history.Fault
	lost     []history.Fault // the first ones
	passedBy []history.Fault // neither marked nor settled otherwise, and at or under the cursor of their lane

	listed                []history.Fault
	doubled               int
	noRow, late           int64
	unmarked              int64
	passed                int64
	forgiven, forgivenKey int64
}

// suspect takes a fault from the checker.
func (s *suspects) suspect(f history.Fault) {
	switch f.Kind {
	case history.Phantom:
		s.unknown = append(s.unknown, f)
	case history.Unmarked:
		s.fresh = append(s.fresh, f)
	case history.OutOfOrder:
		if len(s.disorder) < mostJudged {
			s.disorder = append(s.disorder, f)
		}
	case history.Doubled:
		if s.doubled++; s.doubled <= s.first {
			s.listed = append(s.listed, f)
		}
	case history.Lost:
		if len(s.lost) < s.first {
			s.lost = append(s.lost, f)
		}
	}
}

func (s *suspects) full() bool { return len(s.unknown) >= enough || len(s.fresh) >= enough }

// lookUp asks the table again about messages that had no row, and events that were not marked, when it was read.
func (s *suspects) lookUp(ctx context.Context) error {
	rows, err := s.rows(ctx, s.unknown)
	if err != nil {
		return err
	}
	for _, f := range s.unknown {
		if _, ok := rows[f.ID]; ok {
			s.late++
			continue
		}
		if s.noRow++; s.noRow <= int64(s.first) {
			s.listed = append(s.listed, f)
		}
	}
	s.unknown = s.unknown[:0]
	still, err := s.notMarked(ctx, s.fresh)
	if err != nil {
		return err
	}
	s.stale = append(s.stale, still...)
	s.fresh = s.fresh[:0]
	return nil
}

func (s *suspects) rows(ctx context.Context, faults []history.Fault) (map[string]store.VerifyRow, error) {
	rows := map[string]store.VerifyRow{}
	for len(faults) > 0 {
		n := min(len(faults), enough)
		ids := make([]string, n)
		for i, f := range faults[:n] {
			ids[i] = f.ID
		}
		found, err := s.store.VerifyByID(ctx, ids)
		if err != nil {
			return nil, err
		}
		for _, row := range found {
			rows[row.ID] = row
		}
		faults = faults[n:]
	}
	return rows, nil
}

// notMarked returns those that are neither marked nor in the dead-letter list. A row that is gone was marked before it was archived.
func (s *suspects) notMarked(ctx context.Context, faults []history.Fault) ([]history.Fault, error) {
	rows, err := s.rows(ctx, faults)
	if err != nil {
		return nil, err
	}
	var still []history.Fault
	for _, f := range faults {
		row, ok := rows[f.ID]
		dead := row.DeadLetter && (!row.Resolved || row.Skipped)
		if ok && !row.Processed && !dead {
			still = append(still, f)
		}
	}
	return still, nil
}

// settle waits for marks that are under way, and looks once more at events out of order: while the streams were read, somebody may have
// decided about them.
func (s *suspects) settle(ctx context.Context) error {
	deadline := time.Now().Add(s.settleFor)
	for {
		still, err := s.notMarked(ctx, s.stale)
		if err != nil {
			return err
		}
		s.stale = still
		if len(still) == 0 || time.Now().After(deadline) {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(recheckEvery):
		}
	}
	s.unmarked = int64(len(s.stale))
	s.listed = append(s.listed, s.stale[:min(len(s.stale), s.first)]...)
	if err := s.settleDisorder(ctx); err != nil {
		return err
	}
	if err := s.nameLost(ctx); err != nil {
		return err
	}
	return s.settlePassed(ctx)
}

// whyPassed is said of rows that no worker will read again: somebody has changed them, or their cursor.
const whyPassed = "not marked, and its lane has gone past it: no worker reads it again"

// settlePassed looks again at rows that their lane's cursor has passed. A decision that sets the cursor back may have come between the cursors and
// the rows, so that the cursors are read before and after. What is stored is unmarked, and counted so.
func (s *suspects) settlePassed(ctx context.Context) error {
	if len(s.passedBy) == 0 {
		return nil
	}
	before, err := s.store.Cursors(ctx)
	if err != nil {
		return err
	}
	rows, err := s.rows(ctx, s.passedBy)
	if err != nil {
		return err
	}
	after, err := s.store.Cursors(ctx)
	if err != nil {
		return err
	}
	unmarked := make(map[string]bool, len(s.stale))
	for _, f := range s.stale {
		unmarked[f.ID] = true
	}
	for _, f := range s.passedBy {
		row, ok := rows[f.ID]
		if !ok || unmarked[f.ID] || !unsettled(row) || row.Seq > min(before[lane(row)], after[lane(row)]) {
			continue
		}
		if s.passed++; s.passed <= int64(s.first) {
			s.listed = append(s.listed, f)
		}
	}
	return nil
}

func (s *suspects) settleDisorder(ctx context.Context) error {
	rows, err := s.rows(ctx, s.disorder)
	if err != nil {
		return err
	}
	named := 0
	for _, f := range s.disorder {
		row := rows[f.ID]
		if (row.DeadLetter || row.Parked) && !f.Listed {
			s.forgiven++
			if f.ByKey {
				s.forgivenKey++
			}
			continue
		}
		if named++; named <= s.first {
			s.listed = append(s.listed, f)
		}
	}
	return nil
}

// nameLost finds the ids of the lost events to list: the checker keeps their seq only.
func (s *suspects) nameLost(ctx context.Context) error {
	if len(s.lost) == 0 {
		return nil
	}
	seqs := make([]int64, len(s.lost))
	for i, f := range s.lost {
		seqs[i] = f.Seq
	}
	rows, err := s.store.VerifyBySeq(ctx, seqs)
	if err != nil {
		return fmt.Errorf("find lost events: %w", err)
	}
	ids := map[int64]string{}
	for _, row := range rows {
		ids[row.Seq] = row.ID
	}
	for i := range s.lost {
		s.lost[i].ID = ids[s.lost[i].Seq]
	}
	s.listed = append(s.listed, s.lost...)
	return nil
}
