package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"
)

// format is what -o says.
type format string

const (
	formatText format = "text"
	formatJSON format = "json"
	formatYAML format = "yaml"
)

// output gives cmd the flag -o, for text and the other formats named.
func output(cmd *cobra.Command, others ...format) *format {
	f := &outputFlag{value: formatText, allowed: append([]format{formatText}, others...)}
	cmd.Flags().VarP(f, "output", "o", "what to print: "+f.choices())
	return &f.value
}

type outputFlag struct {
	value   format
	allowed []format
}

func (f *outputFlag) String() string { return string(f.value) }
func (f *outputFlag) Type() string   { return "format" }

func (f *outputFlag) choices() string {
	var names []string
	for _, a := range f.allowed {
		names = append(names, string(a))
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

func (f *outputFlag) Set(text string) error {
	for _, a := range f.allowed {
		if string(a) == text {
			f.value = a
			return nil
		}
	}
	return fmt.Errorf("want %s", f.choices())
}

// printJSON writes one value, indented, for scripts.
func printJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

// say writes a line.
func say(w io.Writer, format string, args ...any) error {
	if _, err := fmt.Fprintf(w, format+"\n", args...); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

// table writes rows in columns, the first row being the head. What was written by others is cleaned of line ends and control characters.
func table(w io.Writer, rows [][]string) error {
	var b strings.Builder
	for _, row := range rows {
		for i, cell := range row {
			if i > 0 {
				b.WriteByte('\t')
			}
			if cell == "" {
				cell = "-"
			}
			b.WriteString(plain(cell))
		}
		b.WriteByte('\n')
	}
	columns := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if _, err := io.WriteString(columns, b.String()); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return columns.Flush()
}

// plain makes a text fit for a terminal's line.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return '�'
		}
		return r
	}, text)
}

// cut shortens a text to n characters.
func cut(text string, n int) string {
	runes := []rune(text)
	if len(runes) <= n {
		return text
	}
	return string(runes[:n-1]) + "…"
}

// count writes a number with commas: 1,204.
func count(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// span writes a duration for people: 0.4s, 12s, 3m20s, 5h, 3d4h.
func span(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < 10*time.Second:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + "s"
	case d < time.Minute:
		return strconv.Itoa(int(d.Seconds())) + "s"
	case d < time.Hour:
		return fmt.Sprintf("%dm%ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < day:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%dh", int(d/day), int(d.Hours())%24)
}
