package verify

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// Progress tells how far a step of a check is. Total is an estimate, and 0 if unknown.
type Progress struct {
	Step        string
	Done, Total int64
}

const linesEvery = 10 * time.Second

// Bar returns a function for Options.Progress that draws a bar on a terminal of the given width, and a function that clears it.
func Bar(w io.Writer, width int) (show func(Progress), done func()) {
	const text = 48 // room for the step and the numbers
	cells := int64(min(40, max(5, width-text)))
	next := time.Time{}
	show = func(p Progress) {
		if now := time.Now(); now.After(next) || p.Done >= p.Total {
			next = now.Add(100 * time.Millisecond)
			full := int64(0)
			if p.Total > 0 {
				full = min(cells, cells*p.Done/p.Total)
			}
			_, _ = fmt.Fprintf(w, "\r\x1b[K%-24s [%s%s] %3d%% %d", p.Step, strings.Repeat("#", int(full)), strings.Repeat(".", int(cells-full)),
				percent(p), p.Done) // a broken terminal is no reason to end a check
		}
	}
	return show, func() { _, _ = fmt.Fprint(w, "\r\x1b[K") }
}

// Lines returns a function for Options.Progress that writes a line at the end of each step, and every ten seconds.
func Lines(w io.Writer) func(Progress) {
	next := time.Now().Add(linesEvery)
	return func(p Progress) {
		now := time.Now()
		if p.Done < p.Total && now.Before(next) {
			return
		}
		next = now.Add(linesEvery)
		_, _ = fmt.Fprintf(w, "%s: %d of %d (%d%%)\n", p.Step, p.Done, p.Total, percent(p)) // as above
	}
}

func percent(p Progress) int64 {
	if p.Total <= 0 {
		return 0
	}
	return min(100, 100*p.Done/p.Total)
}
