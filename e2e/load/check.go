package load

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/outlane/outlane/internal/history"
	"github.com/outlane/outlane/internal/verify"
)

// mostListed bounds how many offenders of a kind are named.
const mostListed = 5

// Verdict is what a check found.
type Verdict struct {
	Committed, RolledBack int
	// Stored is how many messages the streams have, those of others included.
	Stored int
	// Faults are what is wrong.
	Faults []string
}

// Clean tells whether nothing is wrong.
func (v Verdict) Clean() bool { return len(v.Faults) == 0 }

// String is the verdict in one line, or one and one for each fault.
func (v Verdict) String() string {
	text := fmt.Sprintf("%d committed, %d rolled back, %d stored: ", v.Committed, v.RolledBack, v.Stored)
	if v.Clean() {
		return text + "none lost, doubled or out of order"
	}
	return text + "WRONG\n" + strings.Join(v.Faults, "\n")
}

// Check compares the ledger, the table and the streams. It is for when the producers have ended and everything is settled.
func (x *Site) Check(ctx context.Context) (Verdict, error) {
	s, err := x.openStore()
	if err != nil {
		return Verdict{}, err
	}
	defer s.Close()
	stored := map[uuid.UUID]time.Time{}
	report, err := verify.Run(ctx, verify.Options{Store: s, JetStream: x.js, Complete: true, OnMessage: func(m history.Message) {
		if id, err := uuid.Parse(m.ID); err == nil {
			stored[id] = m.Time
		}
	}})
	if err != nil {
		return Verdict{}, fmt.Errorf("verify: %w", err)
	}
	v := Verdict{Stored: int(report.Stored)}
	if !report.Clean() {
		var text strings.Builder
		if err := report.WriteText(&text); err != nil {
			return Verdict{}, err
		}
		v.Faults = append(v.Faults, text.String())
	}
	if n := report.Waiting + report.InFlight + report.Parked + report.DeadLetters + report.Expired; n > 0 {
		v.Faults = append(v.Faults, fmt.Sprintf("%d events are not settled: waiting %d, in flight %d, parked %d, dead letters %d, expired %d", n, report.Waiting,
			report.InFlight, report.Parked, report.DeadLetters, report.Expired))
	}
	x.ledger.compare(stored, &v)
	return v, nil
}

// compare holds what is stored against what the producers know.
func (l *ledger) compare(stored map[uuid.UUID]time.Time, v *Verdict) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v.Committed, v.RolledBack = l.counts[committed], l.counts[rolledBack]
	var lost, ghosts []string
	for id, e := range l.events {
		_, there := stored[id]
		switch {
		case e.outcome == committed && !there:
			lost = append(lost, id.String())
		case e.outcome == rolledBack && there:
			ghosts = append(ghosts, id.String())
		}
	}
	for what, ids := range map[string][]string{"committed and not stored": lost, "rolled back, and stored all the same": ghosts} {
		if len(ids) > 0 {
			slices.Sort(ids)
			v.Faults = append(v.Faults, fmt.Sprintf("%d events were %s, such as %s", len(ids), what, strings.Join(ids[:min(len(ids), mostListed)], ", ")))
		}
	}
}

// Keep writes what there is to know into files of a folder: the ledger, the table, the messages of the streams, and the logs of servers that
// Start runs.
func (x *Site) Keep(ctx context.Context, dir string) error {
	return errors.Join(x.keepLedger(dir), x.keepTable(ctx, dir, "outbox_events", "SELECT seq, id, stream, partition, partition_key, xact, xact_oldest, processed, processed_at, attempts, error FROM outbox_events ORDER BY seq"),
		x.keepTable(ctx, dir, "outlane_partitions", "SELECT * FROM outlane_partitions ORDER BY partition"),
		x.keepTable(ctx, dir, "outlane_members", "SELECT * FROM outlane_members"),
		x.keepTable(ctx, dir, "outlane_lane_states", "SELECT * FROM outlane_lane_states"), x.keepStreams(ctx, dir), x.servers.keepLogs(dir))
}

func (x *Site) keepLedger(dir string) error {
	x.ledger.mu.Lock()
	defer x.ledger.mu.Unlock()
	rows := make([][]string, 0, len(x.ledger.events))
	for id, e := range x.ledger.events {
		stored := ""
		if !e.stored.IsZero() {
			stored = e.stored.Format(time.RFC3339Nano)
		}
		rows = append(rows, []string{e.over.Format(time.RFC3339Nano), id.String(), [...]string{"in doubt", "committed", "rolled back"}[e.outcome], stored})
	}
	slices.SortFunc(rows, func(a, b []string) int { return strings.Compare(a[0]+a[1], b[0]+b[1]) })
	return write(dir, "ledger", append([][]string{{"over", "id", "outcome", "stored"}}, rows...))
}

func (x *Site) keepTable(ctx context.Context, dir, name, query string) error {
	result, err := x.DB.Query(ctx, query)
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	defer result.Close()
	var head []string
	for _, field := range result.FieldDescriptions() {
		head = append(head, field.Name)
	}
	rows := [][]string{head}
	for result.Next() {
		values, err := result.Values()
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		row := make([]string, len(values))
		for i, value := range values {
			row[i] = fmt.Sprint(value)
		}
		rows = append(rows, row)
	}
	if err := result.Err(); err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	return write(dir, name, rows)
}

// keepStreams writes the order in which the streams have the events, by the checker's own reader.
func (x *Site) keepStreams(ctx context.Context, dir string) error {
	s, err := x.openStore()
	if err != nil {
		return err
	}
	defer s.Close()
	rows := [][]string{{"stream", "stream_seq", "id", "seq", "partition", "time"}}
	report, err := verify.Run(ctx, verify.Options{Store: s, JetStream: x.js, OnMessage: func(m history.Message) {
		rows = append(rows, []string{m.Stream, strconv.FormatUint(m.StreamSeq, 10), m.ID, strconv.FormatInt(m.Seq, 10), strconv.Itoa(m.Partition), m.Time.Format(time.RFC3339Nano)})
	}})
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	var text strings.Builder
	err = errors.Join(report.WriteText(&text), write(dir, "streams", rows))
	return errors.Join(err, os.WriteFile(filepath.Join(dir, "verify.txt"), []byte(text.String()), 0o644))
}

func write(dir, name string, rows [][]string) error {
	f, err := os.Create(filepath.Join(dir, name+".csv"))
	if err != nil {
		return fmt.Errorf("keep %s: %w", name, err)
	}
	if err := errors.Join(csv.NewWriter(f).WriteAll(rows), f.Close()); err != nil {
		return fmt.Errorf("keep %s: %w", name, err)
	}
	return nil
}
