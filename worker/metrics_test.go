package worker

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// documented finds a metric's row in docs/metrics.md.
var documented = regexp.MustCompile("(?m)^\\| `(outlane_[a-z_]+)` \\| (counter|gauge|histogram) \\| ([a-z, ]*)\\|")

func TestMetricsAreThoseOfTheDocument(t *testing.T) {
	page, err := os.ReadFile("../docs/metrics.md")
	require.NoError(t, err)
	var doc []string
	for _, m := range documented.FindAllStringSubmatch(string(page), -1) {
		doc = append(doc, m[1]+" "+m[2]+" "+strings.TrimSpace(m[3]))
	}

	m := NewMetrics()
	m.watch(&Worker{tracker: &tracker{}})
	m.touch()
	families, err := m.registry.Gather()
	require.NoError(t, err)
	var real []string
	for _, f := range families {
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		slices.Sort(labels)
		real = append(real, f.GetName()+" "+strings.ToLower(f.GetType().String())+" "+strings.Join(labels, ", "))
		require.NotEmpty(t, f.GetHelp())
	}
	slices.Sort(doc)
	slices.Sort(real)
	require.Equal(t, real, doc)
}

// touch gives every vector one member, so that all of them are exported.
func (m *Metrics) touch() {
	m.events.WithLabelValues("s")
	m.eventAge.WithLabelValues("s")
	m.publishSeconds.WithLabelValues("s")
	m.publishErrors.WithLabelValues("s", "k", "r")
	m.databaseErrors.WithLabelValues("o")
	m.retries.WithLabelValues("s")
	m.deadLetters.WithLabelValues("s", "r")
	m.parkedEvents.WithLabelValues("s")
	m.handovers.WithLabelValues("k")
	m.streamLosses.WithLabelValues("s")
	m.streamUp.WithLabelValues("s")
	m.waiting.WithLabelValues("s", "1")
	m.lagSeconds.WithLabelValues("s", "1")
	m.deadLettersOpen.WithLabelValues("s", "1")
	m.parkedOpen.WithLabelValues("s", "1")
}
