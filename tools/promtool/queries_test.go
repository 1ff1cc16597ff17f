package promtool

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

const files = "../../charts/outlane/files/"

// documented finds a metric's row in docs/metrics.md, which a test of package worker holds to what a worker exports.
var documented = regexp.MustCompile("(?m)^\\| `(outlane_[a-z_]+)` \\| (counter|gauge|histogram) \\| ([a-z, ]*)\\|")

// exported are the labels of each series that a worker exports, as it is scraped in Kubernetes.
func exported(t *testing.T) map[string][]string {
	t.Helper()
	page, err := os.ReadFile("../../docs/metrics.md")
	require.NoError(t, err)
	series := map[string][]string{}
	for _, m := range documented.FindAllStringSubmatch(string(page), -1) {
		names := []string{"namespace", "job", "pod"}
		for label := range strings.SplitSeq(m[3], ",") {
			if label = strings.TrimSpace(label); label != "" {
				names = append(names, label)
			}
		}
		if m[2] != "histogram" {
			series[m[1]] = names
			continue
		}
		series[m[1]+"_bucket"] = append(slices.Clone(names), "le")
		series[m[1]+"_sum"], series[m[1]+"_count"] = names, names
	}
	require.Greater(t, len(series), 20)
	return series
}

// check parses a query and says whether every series, matcher and grouping in it exists.
func check(t *testing.T, series map[string][]string, where, query string) {
	t.Helper()
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(query)
	require.NoError(t, err, "%s: %s", where, query)
	parser.Inspect(expr, func(node parser.Node, path []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			known, ok := series[n.Name]
			require.True(t, ok, "%s: no worker exports %q: %s", where, n.Name, query)
			selects := map[string]bool{}
			for _, m := range n.LabelMatchers {
				if m.Name != model.MetricNameLabel {
					require.Contains(t, known, m.Name, "%s: %s", where, query)
					selects[m.Name] = true
				}
			}
			require.True(t, selects["job"], "%s: it would mix pools: %s", where, query)
		case *parser.AggregateExpr:
			require.False(t, n.Without, "%s: %s", where, query)
			for _, label := range n.Grouping {
				require.Contains(t, below(n.Expr, series), label, "%s: %s", where, query)
			}
		case *parser.BinaryExpr:
			if n.VectorMatching != nil && n.VectorMatching.On {
				for _, label := range n.VectorMatching.MatchingLabels {
					require.Contains(t, below(n.LHS, series), label, "%s: %s", where, query)
					require.Contains(t, below(n.RHS, series), label, "%s: %s", where, query)
				}
			}
		}
		return nil
	})
}

// below are the labels that series under a node have.
func below(node parser.Node, series map[string][]string) []string {
	var all []string
	parser.Inspect(node, func(n parser.Node, _ []parser.Node) error {
		if v, ok := n.(*parser.VectorSelector); ok {
			all = append(all, series[v.Name]...)
		}
		return nil
	})
	return all
}

func TestAlertsUseWhatWorkersExport(t *testing.T) {
	text, err := os.ReadFile(files + "alerts.yaml")
	require.NoError(t, err)
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
				Labels      map[string]string
				Annotations map[string]string
			}
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &file))
	tests, err := os.ReadFile("../../charts/alerts_test.yaml")
	require.NoError(t, err)
	series := exported(t)
	pages := map[string]bool{}
	for _, rule := range file.Groups[0].Rules {
		check(t, series, rule.Alert, rule.Expr)
		require.NotEmpty(t, rule.Annotations["summary"], rule.Alert)
		require.Contains(t, []string{"warning", "critical"}, rule.Labels["severity"], rule.Alert)
		require.Contains(t, string(tests), "alertname: "+rule.Alert+"\n        exp_alerts", "%s is not seen to fire", rule.Alert)
		page := rule.Alert + ".md"
		require.True(t, strings.HasSuffix(rule.Annotations["runbook_url"], "/docs/runbooks/"+page), rule.Alert)
		body, err := os.ReadFile("../../docs/runbooks/" + page)
		require.NoError(t, err)
		for _, heading := range []string{"# " + rule.Alert, "## What it means", "## What to do"} {
			require.Contains(t, string(body), heading, page)
		}
		pages[page] = true
	}
	entries, err := os.ReadDir("../../docs/runbooks")
	require.NoError(t, err)
	for _, e := range entries {
		require.True(t, pages[e.Name()] || e.Name() == "README.md", "%s is about no alert", e.Name())
	}
}

func TestDashboardUsesWhatWorkersExport(t *testing.T) {
	text, err := os.ReadFile(files + "dashboard.json")
	require.NoError(t, err)
	var dashboard struct {
		Panels []struct {
			Title, Type string
			Targets     []struct{ Expr, LegendFormat string }
		}
		Annotations struct{ List []struct{ Expr string } }
	}
	require.NoError(t, json.Unmarshal(text, &dashboard))
	series := exported(t)
	used := map[string]bool{}
	queries := 0
	variables := strings.NewReplacer("$__rate_interval", "1m", "$namespace", "a", "$job", "b")
	for _, panel := range dashboard.Panels {
		require.Equal(t, panel.Type == "row", len(panel.Targets) == 0, panel.Title)
		for _, target := range panel.Targets {
			check(t, series, panel.Title, variables.Replace(target.Expr))
			for _, name := range regexp.MustCompile(`outlane_[a-z_]+`).FindAllString(target.Expr, -1) {
				used[name] = true
			}
			queries++
		}
	}
	require.Greater(t, queries, 30)
	for _, a := range dashboard.Annotations.List {
		check(t, series, "annotation", variables.Replace(a.Expr))
	}
	for name := range series {
		base := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
		shown := used[name] || used[base+"_bucket"] || used[base+"_sum"]
		require.True(t, shown || name == "outlane_stream_losses_total", "the dashboard does not show %s", name)
	}
}

// The query of the chart's KEDA trigger.
func TestScaledObjectUsesWhatWorkersExport(t *testing.T) {
	text, err := os.ReadFile("../../charts/outlane/templates/scaledobject.yaml")
	require.NoError(t, err)
	m := regexp.MustCompile("query: \\{\\{ printf `(ceil[^`]*)`").FindStringSubmatch(string(text))
	require.NotNil(t, m)
	query := strings.NewReplacer("{%s}", `{namespace="a",job="b"}`, "%d", "10000").Replace(m[1])
	check(t, exported(t), "ScaledObject", query)
}
