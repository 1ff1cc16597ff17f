package bench

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Report is what a run has measured.
type Report struct {
	Size     string    `json:"size"`
	Began    time.Time `json:"began"`
	Seconds  float64   `json:"seconds"`
	Cores    int       `json:"cores"`
	Go       string    `json:"go"`
	Postgres string    `json:"postgres"`
	NATS     string    `json:"nats"`
	Sections []Section `json:"sections"`
}

// Section is one subject's part of the report.
type Section struct {
	Letter  string  `json:"letter"`
	Title   string  `json:"title"`
	Seconds float64 `json:"seconds"`
	Rows    []Row   `json:"rows"`
}

// Row is one figure.
type Row struct {
	Name string `json:"name"`
	// Value is the median of Samples, in Unit.
	Value   float64   `json:"value"`
	Unit    string    `json:"unit"`
	Samples []float64 `json:"samples,omitempty"`
	// Baseline is what Value is compared with, in the same unit, and Against its name. Ratio is Value over Baseline, 0 if there is none.
	Baseline float64 `json:"baseline,omitempty"`
	Against  string  `json:"against,omitempty"`
	Ratio    float64 `json:"ratio,omitempty"`
	// Target, if not empty, is what the ratio (or Value, where there is none) should be, such as "≥ 0.9", and Met whether it is.
	Target string `json:"target,omitempty"`
	Met    *bool  `json:"met,omitempty"`
	Note   string `json:"note,omitempty"`

	overall float64   // see drained
	peaks   []float64 // of each run
	used    usage
}

// against compares r with another figure.
func (r Row) against(name string, baseline float64) Row {
	r.Against, r.Baseline = name, baseline
	return r
}

// target says what is wanted.
func (r Row) target(text string) Row {
	r.Target = text
	return r
}

func (r Row) note(format string, args ...any) Row {
	if r.Note != "" {
		r.Note += "; "
	}
	r.Note += fmt.Sprintf(format, args...)
	return r
}

// row is the median of some samples.
func row(name, unit string, samples ...float64) Row {
	return Row{Name: name, Unit: unit, Value: median(samples), Samples: samples}
}

func (r *Row) judge() {
	figure := r.Value
	if r.Against != "" {
		if r.Baseline != 0 {
			r.Ratio = r.Value / r.Baseline
		}
		figure = r.Ratio
	}
	sign, number, ok := strings.Cut(r.Target, " ")
	if !ok {
		return
	}
	bound, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return
	}
	met := figure >= bound
	if sign == "≤" {
		met = figure <= bound
	}
	r.Met = &met
}

func median(samples []float64) float64 {
	if len(samples) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(samples))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// quantile of sorted samples.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(math.Ceil(q*float64(len(sorted))))-1)]
}

// Cells are the report's rows as text, a table a section; the first row of each is the head.
func (s Section) Cells() [][]string {
	cells := [][]string{{"measured", "value", "compared with", "its value", "ratio", "target", "met", "note"}}
	for _, r := range s.Rows {
		line := []string{r.Name, figure(r.Value) + " " + r.Unit, r.Against, "", "", r.Target, "", r.Note}
		if r.Against != "" {
			line[3], line[4] = figure(r.Baseline)+" "+r.Unit, strconv.FormatFloat(r.Ratio, 'f', 2, 64)
		}
		if r.Met != nil {
			line[6] = map[bool]string{true: "yes", false: "no"}[*r.Met]
		}
		cells = append(cells, line)
	}
	return cells
}

// amount writes a whole number.
func amount(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// figure writes a number with three digits that count, or all before the point.
func figure(x float64) string {
	switch a := math.Abs(x); {
	case a >= 1000:
		return amount(int(math.Round(x)))
	case a >= 100:
		return strconv.FormatFloat(x, 'f', 0, 64)
	case a >= 10:
		return strconv.FormatFloat(x, 'f', 1, 64)
	case a >= 1 || a == 0:
		return strconv.FormatFloat(x, 'f', 2, 64)
	}
	return strconv.FormatFloat(x, 'f', 3, 64)
}

// Markdown writes the report for a document.
func (r Report) Markdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Measured %s in %d minutes on %d cores: Postgres %s, NATS server %s, %s, size \"%s\".\n",
		r.Began.Format("2 January 2006"), int(math.Ceil(r.Seconds/60)), r.Cores, r.Postgres, r.NATS, r.Go, r.Size)
	for _, s := range r.Sections {
		fmt.Fprintf(&b, "\n### %s. %s\n\n", s.Letter, s.Title)
		for i, cells := range s.Cells() {
			for j := range cells {
				cells[j] = strings.ReplaceAll(cells[j], "|", "\\|")
			}
			b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
			if i == 0 {
				b.WriteString("|---|--:|---|--:|--:|--:|---|---|\n")
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
