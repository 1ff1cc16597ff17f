package e2e

import (
	"fmt"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

// table is what the suite says at its end.
type table struct {
	started time.Duration // how long the cluster and the servers took

	mu   sync.Mutex
	rows []row
}

// row is one scenario.
type row struct {
	letter, title string
	measured      []string
	verdict       string
	took          time.Duration
	failed        bool
}

func (t *table) add(r row) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rows = append(t.rows, r)
}

func (t *table) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out strings.Builder
	fmt.Fprintf(&out, "\ncluster, Postgres and NATS ready after %s\n", round(t.started))
	for _, r := range t.rows {
		word := "ok"
		if r.failed {
			word = "FAILED"
		}
		fmt.Fprintf(&out, "\n%s  %s: %s in %s\n", r.letter, r.title, word, round(r.took))
		w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
		for _, m := range r.measured {
			_, _ = fmt.Fprintf(w, "   %s\n", m)
		}
		_ = w.Flush() // into memory
		if r.verdict != "" {
			fmt.Fprintf(&out, "   history: %s\n", r.verdict)
		}
	}
	return out.String()
}

// round makes a duration short enough to read.
func round(d time.Duration) time.Duration {
	if d < 10*time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(100 * time.Millisecond)
}
