// Package bench measures what `outlane bench` says: how fast a pool drains, how late events are, and what that costs, each beside something
// else that was measured in the same run on the same machine.
//
// What it promises: Postgres, each NATS server, each worker and each thing to compare with is a process of its own; both sides of a ratio get
// the same rows from copies of the same database; their runs alternate, and the median of each counts; times of storing are the NATS
// server's; whatever is stored is read again and what is out of the order of its key, missing or doubled is counted on all sides.
//
// What it does not promise: figures for another machine. Everything shares the cores, the measuring included, and Postgres runs without fsync.
//
// A program that calls Run calls ServeChild before anything else: its own executable is what runs as the other processes.
package bench

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Size says how much a run does.
type Size int

// The sizes. Smoke runs every section with next to nothing, to see that all of it works: its figures mean nothing.
const (
	Smoke Size = iota
	Normal
	Full
)

// Options say what to do.
type Options struct {
	// Program is the outlane executable.
	Program string
	Size    Size
	// Only are the letters of the sections to run; empty: all.
	Only []string
	// Profile is a folder for CPU profiles of the processes; empty: none are made.
	Profile string
	// Progress, if not nil, is told what happens now.
	Progress func(text string)
}

// section is one subject. It measures in a lab, which is its own while it does.
type section struct {
	letter, title string
	run           func(ctx context.Context, l *lab) ([]Row, error)
}

var sections = []section{
	{"a", "Drain of a backlog", drain},
	{"b", "Latency and cost at a steady rate", latency},
	{"c", "A large table", largeTable},
	{"d", "Other sessions that hold things back", disturbed},
	{"e", "Inserts", inserts},
	{"f", "An idle pool", idle},
	{"g", "Three replicas", replicated},
	{"h", "Larger payloads", payloads},
	{"i", "Uneven backlogs", skew},
}

// Sections are the letters of all sections.
func Sections() []string {
	letters := make([]string, len(sections))
	for i, s := range sections {
		letters[i] = s.letter
	}
	return letters
}

// Run measures. If a section fails, it returns the error, and what the sections before have measured.
func Run(ctx context.Context, opts Options) (report Report, err error) {
	report = Report{Size: opts.Size.String(), Cores: runtime.NumCPU(), Go: runtime.Version(), Began: time.Now().UTC().Truncate(time.Second)}
	l, err := open(ctx, opts)
	if err != nil {
		return report, err
	}
	defer func() {
		if e := l.close(); err == nil {
			err = e
		}
		report.Seconds = time.Since(report.Began).Seconds()
	}()
	report.Postgres, report.NATS = l.versions()
	for _, s := range sections {
		if !opts.wants(s.letter) {
			continue
		}
		l.section = s.letter
		l.say("%s", strings.ToLower(s.title))
		began := time.Now()
		rows, err := s.run(ctx, l)
		for i := range rows {
			rows[i].judge()
		}
		report.Sections = append(report.Sections, Section{Letter: s.letter, Title: s.title, Rows: rows, Seconds: time.Since(began).Seconds()})
		if err != nil {
			return report, fmt.Errorf("section %s: %w", s.letter, err)
		}
		if err := l.tidy(ctx); err != nil {
			return report, err
		}
	}
	return report, nil
}

func (o Options) wants(letter string) bool {
	return len(o.Only) == 0 || slices.Contains(o.Only, letter)
}

// String names the size.
func (s Size) String() string { return [...]string{"smoke", "normal", "full"}[s] }
