package demo

import (
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"
)

// linesEvery is how often a status is written where it cannot be redrawn.
const linesEvery = 3 * time.Second

// display writes what happens: lines that stay, and a status that is redrawn on a terminal.
type display struct {
	mu    sync.Mutex
	out   io.Writer
	width int
	began time.Time
	next  time.Time
}

func newDisplay(out io.Writer, width int) *display {
	return &display{out: out, width: width, began: time.Now()}
}

const clearLine = "\r\x1b[K"

// say writes a line that stays. Nobody is told if the terminal is gone.
func (s *display) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.width > 0 {
		_, _ = io.WriteString(s.out, clearLine)
	}
	_, _ = fmt.Fprintf(s.out, "%4.0fs  %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

// status writes how things stand.
func (s *display) status(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	line := fmt.Sprintf("%4.0fs  %s", time.Since(s.began).Seconds(), text)
	if s.width > 0 {
		if r := []rune(line); len(r) >= s.width {
			line = string(r[:s.width-1])
		}
		_, _ = io.WriteString(s.out, clearLine+line)
		return
	}
	if now := time.Now(); now.After(s.next) {
		s.next = now.Add(linesEvery)
		_, _ = fmt.Fprintln(s.out, line)
	}
}

// clear removes the status.
func (s *display) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.width > 0 {
		_, _ = io.WriteString(s.out, clearLine)
	}
}

// count writes a number with commas.
func count(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// span writes a duration as people say it.
func span(d time.Duration) string {
	switch {
	case d < 10*time.Millisecond:
		return d.Round(100 * time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	default:
		return d.Round(10 * time.Millisecond).String()
	}
}
