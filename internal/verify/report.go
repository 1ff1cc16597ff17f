package verify

import (
	"cmp"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/outlane/outlane/internal/history"
)

// Report is what a check found. The first five fields are a fixed form that scripts read.
type Report struct {
	// Checked counts the events that were compared: all but those that wait, are in flight, or expired.
	Checked int64 `json:"checked"`
	// Lost events are marked as processed and not in their stream, or neither, and behind the cursor of their lane, where no worker looks again.
	Lost int64 `json:"lost"`
	// Doubled counts copies of messages beyond the first.
	Doubled int64 `json:"doubled"`
	// OutOfOrder events are stored after one that they had to precede.
	OutOfOrder int64 `json:"out_of_order"`
	// Unmarked events are stored and not marked as processed.
	Unmarked int64 `json:"unmarked"`

	// OutOfOrderKey counts those of OutOfOrder that broke the order of their key, not only of their lane.
	OutOfOrderKey int64 `json:"out_of_order_key"`
	// NoRow counts messages whose event is not in the table.
	NoRow int64 `json:"no_row"`
	// Stored counts events that are in their stream.
	Stored int64 `json:"stored"`
	// Waiting events are neither stored nor settled; InFlight ones appeared while the check ran.
	Waiting  int64 `json:"waiting"`
	InFlight int64 `json:"in_flight"`
	// DeadLetters, Skipped and Parked count events in these lists, which are not stored and need not be.
	DeadLetters int64 `json:"dead_letters"`
	Skipped     int64 `json:"skipped"`
	Parked      int64 `json:"parked"`
	// Expired events may or may not have been stored: their stream has dropped messages.
	Expired int64 `json:"expired"`

	Streams []StreamReport `json:"streams"`
	// Notes say in sentences what could not be checked, and why.
	Notes []string `json:"notes"`
	// First holds the first offenders of each kind.
	First []history.Fault `json:"first"`

	complete bool
}

// StreamReport is what was read of a stream.
type StreamReport struct {
	Name     string `json:"name"`
	Missing  bool   `json:"missing,omitempty"`
	FirstSeq uint64 `json:"first_seq"`
	LastSeq  uint64 `json:"last_seq"`
	// Messages counts the stream's messages that Outlane put there; Foreign the others, copies from mirrored or sourced streams included.
	Messages int64 `json:"messages"`
	Foreign  int64 `json:"foreign"`
}

// Clean tells whether nothing was lost, doubled, out of order or unmarked, nor, if no row was ever deleted, stored without a row.
func (r Report) Clean() bool {
	return r.Lost == 0 && r.Doubled == 0 && r.OutOfOrder == 0 && r.Unmarked == 0 && (!r.complete || r.NoRow == 0)
}

// WriteText writes the report for people.
func (r Report) WriteText(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name string, n int64, always bool, about string) {
		if n != 0 || always {
			_, _ = fmt.Fprintf(t, "%s\t%d\t%s\n", name, n, about) // Flush returns the error
		}
	}
	row("checked", r.Checked, true, "events in table and streams")
	row("lost", r.Lost, true, "marked or passed by, not in their stream")
	row("doubled", r.Doubled, true, "copies beyond the first")
	row("out of order", r.OutOfOrder, true, fmt.Sprintf("%d of them within their key", r.OutOfOrderKey))
	row("unmarked", r.Unmarked, true, "stored, not marked as processed")
	row("no row", r.NoRow, r.complete, "messages whose event is not in the table")
	row("waiting", r.Waiting, false, "not stored yet")
	row("in flight", r.InFlight, false, "newer than this check")
	row("dead letters", r.DeadLetters, false, "wait for a decision")
	row("skipped", r.Skipped, false, "dead letters given up")
	row("parked", r.Parked, false, "wait behind a dead letter of their key")
	row("expired", r.Expired, false, "no longer checkable")
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	for _, note := range r.Notes {
		if _, err := fmt.Fprintf(w, "note: %s\n", note); err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
	}
	if len(r.First) == 0 {
		return nil
	}
	_, _ = fmt.Fprintln(t, "\nfirst offenders\nfault\tevent\tseq\tstream\tpartition\tat\treason")
	for _, f := range r.First {
		at := "-"
		if f.StreamSeq != 0 {
			at = fmt.Sprint(f.StreamSeq)
		}
		_, _ = fmt.Fprintf(t, "%s\t%q\t%d\t%s\t%d\t%s\t%s\n", f.Kind, cut(f.ID), f.Seq, cmp.Or(f.Stream, "-"), f.Partition, at, f.Reason)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

func cut(id string) string {
	const most = 64
	if len(id) > most {
		return id[:most] + "…"
	}
	return id
}
