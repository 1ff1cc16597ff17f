package e2e

import (
	"os"
	"path/filepath"
	"strings"
)

// keepEvidence writes down what there is to know about a scenario that failed, into a folder that it names.
func (s *scenario) keepEvidence() {
	dir := filepath.Join(suite.evidence, s.row.letter)
	if err := os.RemoveAll(dir); err != nil {
		s.Logf("keep the evidence: %v", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		s.Logf("keep the evidence: %v", err)
		return
	}
	keep := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o600); err != nil {
			s.Logf("keep %s: %v", name, err)
		}
	}
	objects := "pods,deployments,jobs,configmaps,services,poddisruptionbudgets,leases"
	keep("objects.yaml", s.try(suite.Kubernetes, "get", objects, "-o", "yaml"))
	keep("namespace.yaml", s.try(suite.Kubernetes, "get", "namespace", s.namespace, "-o", "yaml"))
	keep("leases.txt", s.try(suite.Kubernetes, "get", "leases", "-o", "wide"))
	keep("events.txt", s.try(suite.Kubernetes, "get", "events", "--sort-by=.lastTimestamp"))
	keep("describe.txt", s.try(suite.Kubernetes, "describe", "pods,deployments,jobs"))
	keep("autoscaling.txt", s.try(suite.Kubernetes, "describe", "scaledobjects,horizontalpodautoscalers"))
	keep("node.txt", s.try(suite.Kubernetes, "describe", "nodes"))
	for _, pod := range s.names(suite.Kubernetes, "get", "pods", "-o", "jsonpath={.items[*].metadata.name}") {
		keep(pod+".log", s.try(suite.Kubernetes, "logs", pod, "--all-containers"))
		if text := s.try(suite.Kubernetes, "logs", pod, "--all-containers", "--previous"); !strings.Contains(text, "not found") {
			keep(pod+".previous.log", text)
		}
	}
	for _, release := range s.names(suite.Helm, "list", "--all", "--short") {
		keep(release+".history.txt", s.try(suite.Helm, "history", release)+"\n\n"+s.try(suite.Helm, "get", "all", release))
	}
	if suite.cluster != nil {
		for _, log := range append(suite.cluster.Logs(), s.logs...) {
			keep(filepath.Base(log), tail(log))
		}
	}
	if err := s.site.Keep(s.ctx, dir); err != nil {
		s.Logf("keep the history: %v", err)
	}
	s.Logf("evidence is in %s", dir)
}

// tail is the last part of a file.
func tail(file string) string {
	const most = 1 << 20
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-most):])
}
