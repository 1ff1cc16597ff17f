package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outlane/outlane/e2e/load"
)

const (
	chart = "../charts/outlane"
	// ceiling bounds each wait. It is far more than is ever needed.
	ceiling = 3 * time.Minute
)

// scenario is one scenario with its namespace and its site: a database and streams of its own.
type scenario struct {
	*testing.T
	ctx       context.Context
	namespace string
	site      *load.Site
	row       row
	began     time.Time
	logs      []string // of further programs, for the evidence
}

// begin makes the namespace, under the strictest level of Pod Security, and the site. At the end of the test it keeps the evidence if that
// failed, and takes everything away.
func begin(t *testing.T, letter, title string) *scenario {
	s := &scenario{T: t, ctx: t.Context(), namespace: "outlane-e2e-" + letter, row: row{letter: letter, title: title}, began: time.Now()}
	s.removeNamespace()
	labels := map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}
	_, err := suite.client.CoreV1().Namespaces().Create(s.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace, Labels: labels}}, metav1.CreateOptions{})
	require.NoError(t, err)
	s.site, err = suite.servers.Site(s.ctx, letter)
	require.NoError(t, err)
	t.Cleanup(s.end)
	return s
}

func (s *scenario) end() {
	s.ctx = context.Background() // the test's own has ended
	s.row.took = time.Since(s.began)
	failed := s.Failed()
	if failed {
		s.keepEvidence()
	}
	defer func() { // also when the namespace does not go
		if s.Failed() && !failed {
			s.keepEvidence()
		}
		s.row.failed = s.Failed()
		suite.table.add(s.row)
	}()
	s.site.Close()
	for _, release := range s.names(suite.Helm, "list", "--all", "--short") {
		s.try(suite.Helm, "uninstall", release, "--no-hooks", "--wait=false")
	}
	s.removeNamespace()
}

// removeNamespace returns when the namespace is gone.
func (s *scenario) removeNamespace() {
	namespaces := suite.client.CoreV1().Namespaces()
	s.eventually("the namespace goes", func() error {
		zero := int64(0)
		err := namespaces.Delete(s.ctx, s.namespace, metav1.DeleteOptions{GracePeriodSeconds: &zero})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err == nil:
			return errors.New("it is still there")
		}
		return err
	})
}

// measured adds a line to the scenario's row of the table.
func (s *scenario) measured(format string, args ...any) {
	s.Helper()
	line := fmt.Sprintf(format, args...)
	s.Log(line)
	s.row.measured = append(s.row.measured, line)
}

// around requires that all that has been committed until now is stored, and adds to the table how long that took for those events that were committed
// since a moment.
func (s *scenario) around(what string, since time.Time) {
	s.Helper()
	s.requireFlow()
	s.measured("%s\tlongest commit → stored %s", what, round(s.site.Longest(since, time.Now())))
}

// eventually waits until a condition is met, which is when it returns no error.
func (s *scenario) eventually(what string, condition func() error) {
	s.Helper()
	deadline, tick := time.After(ceiling), time.NewTicker(100*time.Millisecond)
	defer tick.Stop()
	for {
		err := condition()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			require.FailNow(s, "waited too long for this: "+what, err)
		case <-s.ctx.Done():
			require.FailNow(s, "the test ended while it waited for this: "+what, err)
		}
	}
}

// command is a program of the suite, pointed at the cluster and the namespace.
func (s *scenario) command(program string, args ...string) *exec.Cmd {
	args = append([]string{"--namespace", s.namespace}, args...)
	if program == suite.Kubernetes {
		args = append([]string{"kubectl"}, args...)
	}
	cmd := exec.CommandContext(s.ctx, program, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+suite.kubeconfig)
	return cmd
}

// try runs a program and returns what it says, whatever happens.
func (s *scenario) try(program string, args ...string) string {
	out, err := s.command(program, args...).CombinedOutput()
	if err != nil {
		return strings.TrimSpace(string(out)) + "\n" + err.Error()
	}
	return strings.TrimSpace(string(out))
}

// names are the words that a program says, none if it fails.
func (s *scenario) names(program string, args ...string) []string {
	out, err := s.command(program, args...).Output()
	if err != nil {
		return nil
	}
	return strings.Fields(string(out))
}

func (s *scenario) run(program string, args ...string) string {
	s.Helper()
	var complaints strings.Builder
	cmd := s.command(program, args...)
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	require.NoError(s, err, "%s %s: %s%s", filepath.Base(program), strings.Join(args, " "), out, &complaints)
	return strings.TrimSpace(string(out))
}

// kubectl runs kubectl in the namespace.
func (s *scenario) kubectl(args ...string) string {
	s.Helper()
	return s.run(suite.Kubernetes, args...)
}

// helm runs Helm in the namespace.
func (s *scenario) helm(args ...string) string {
	s.Helper()
	return s.run(suite.Helm, args...)
}

// requireFlow requires that everything that has been committed until now is stored.
func (s *scenario) requireFlow() {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, ceiling)
	defer cancel()
	require.NoError(s, s.site.Await(ctx, time.Now()))
}

// stopAndCheck ends the load, waits until all of it is settled, and compares what was inserted with what the streams have.
func (s *scenario) stopAndCheck(flow *load.Flow) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, ceiling)
	defer cancel()
	require.NoError(s, flow.Stop())
	require.NoError(s, s.site.Settle(ctx))
	verdict, err := s.site.Check(ctx)
	require.NoError(s, err)
	s.row.verdict = verdict.String()
	require.True(s, verdict.Clean(), s.row.verdict)
}

// release is an installed chart.
type release struct {
	*scenario
	name   string
	values map[string]any
}

// newRelease describes a release with what every one of the suite has; set changes it. Nothing is installed yet.
func (s *scenario) newRelease(name string) *release {
	repository, tag, _ := cutLast(suite.Refs[0], ":")
	r := &release{scenario: s, name: name, values: map[string]any{}}
	r.set("database.url", s.site.DatabaseURL)
	r.set("nats.url", s.site.NATSURL)
	r.set("config.partitions", load.Partitions)
	r.set("config.streams", s.site.Streams)
	r.set("migrations.applyStreams", true)
	r.set("image.repository", repository)
	r.set("image.tag", tag)
	return r
}

func cutLast(text, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(text, sep); i >= 0 {
		return text[:i], text[i+len(sep):], true
	}
	return text, "", false
}

// set changes a value, whose name has dots between its parts.
func (r *release) set(name string, value any) {
	in := r.values
	parts := strings.Split(name, ".")
	for _, part := range parts[:len(parts)-1] {
		inner, ok := in[part].(map[string]any)
		if !ok {
			inner = map[string]any{}
			in[part] = inner
		}
		in = inner
	}
	in[parts[len(parts)-1]] = value
}

// apply installs or upgrades the release, waits until its pods are ready unless more arguments say otherwise, and says how long that took.
func (r *release) apply(more ...string) time.Duration {
	r.Helper()
	text, err := json.Marshal(r.values)
	require.NoError(r, err)
	file := filepath.Join(r.TempDir(), "values.json")
	require.NoError(r, os.WriteFile(file, text, 0o600))
	began := time.Now()
	r.helm(append([]string{"upgrade", r.name, chart, "--install", "--values", file, "--wait", "--timeout", ceiling.String()}, more...)...)
	return time.Since(began)
}
