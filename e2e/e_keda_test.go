package e2e

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outlane/outlane/e2e/scaling"
)

const (
	backlog = 100_000
	// target is how many waiting events are worth a worker: ten for the backlog.
	target = 10_000
	// limit is beyond what the backlog is worth, so that it is not what holds the pool back.
	limit = 13
	// eager is after how many seconds the pool shrinks in most of the scenario; patient is more than an upgrade takes.
	eager, patient = 3, 120
)

// TestE lets KEDA decide about the number of workers.
func TestE(t *testing.T) {
	keda := startKEDA(t)
	s := begin(t, "e", "KEDA: from zero, as far as the backlog is worth, and back to zero")
	if keda != nil {
		s.logs = keda.Logs()
	}
	r := s.newRelease("outlane")
	r.set("autoscaling", map[string]any{
		"enabled": true, "minReplicas": 0, "maxReplicas": limit, "target": target, "pollingInterval": 1,
		"scaleUp":   map[string]any{"podsPerMinute": 100},
		"scaleDown": map[string]any{"podsPerMinute": 100},
	})
	r.shrinkAfter(eager)
	r.set("resources", map[string]any{ // workers that are slow enough for a backlog to be seen
		"requests": map[string]any{"cpu": "10m", "memory": "64Mi"}, "limits": map[string]any{"cpu": "100m", "memory": "256Mi"},
	})
	s.measured("helm install\t%s", round(r.apply()))
	workers := r.follow()
	r.waitForWorkers(workers, 0, "to zero after the installation", time.Now())

	began := time.Now()
	require.NoError(t, s.site.Burst(s.ctx, 1))
	s.requireFlow()
	s.measured("first event, from zero workers\tcommit → stored %s", round(s.site.Longest(began, time.Now())))
	r.waitForWorkers(workers, 0, fmt.Sprintf("back to zero, with %d s of patience", eager), time.Now())

	s.backlogOverAllPartitions(r, workers)
	s.backlogOfOneKey(r, workers)
	s.externalTrigger(r, workers)

	s.row.verdict = s.settleAndCheck(s.site)
}

// backlogOverAllPartitions has the pool grow to what the backlog is worth and shrink to its minimum; an upgrade meanwhile changes nothing.
func (s *scenario) backlogOverAllPartitions(r *release, workers *asked) {
	s.Helper()
	const worth = backlog / target
	upgrading := time.Now()
	r.shrinkAfter(patient)
	s.measured("helm upgrade at zero\t%s", round(r.apply()))
	require.Zero(s, workers.most(upgrading), "helm upgrade woke the pool")
	require.NoError(s, s.site.Burst(s.ctx, backlog))
	began := time.Now()
	s.eventually("the backlog scales out", func() error { return atLeast(workers.now(), worth) })
	s.measured("%d events over all partitions\t%d workers asked for after %s", backlog, worth, round(time.Since(began)))
	upgrading = time.Now()
	r.set("deploymentAnnotations", map[string]any{"outlane.dev/e2e": "upgraded"})
	took := r.apply("--wait=false")
	s.measured("helm upgrade meanwhile\t%s, the number of workers stays %d", round(took), workers.least(upgrading))
	require.Equal(s, worth, workers.least(upgrading), "helm upgrade changed the number of workers")
	s.requireFlow()
	s.measured("%d events over all partitions\tall stored after %s", backlog, round(s.site.Longest(time.Time{}, time.Now())))
	require.Equal(s, worth, workers.most(began), "more workers than the backlog is worth")
	r.shrinkAfter(eager)
	r.apply("--wait=false")
	r.waitForWorkers(workers, 0, fmt.Sprintf("back to zero, with %d s of patience", eager), time.Now())
}

// shrinkAfter sets for how many seconds less must be wanted before the pool shrinks, and nothing before it goes to zero.
func (r *release) shrinkAfter(seconds int) {
	r.set("autoscaling.cooldownPeriod", seconds)
	r.set("autoscaling.scaleDown.stabilizationWindowSeconds", seconds)
}

// backlogOfOneKey has the pool stay at the one worker that can do anything about it.
func (s *scenario) backlogOfOneKey(r *release, workers *asked) {
	s.Helper()
	r.set("resources.limits.cpu", "2") // one worker alone has to do it
	r.apply()
	require.NoError(s, s.site.BurstOneKey(s.ctx, backlog))
	began := time.Now()
	s.requireFlow()
	require.Equal(s, 1, workers.most(began), "more workers than can help")
	s.measured("%d events of one key\tnever more than 1 worker, all stored after %s", backlog, round(time.Since(began)))
	r.waitForWorkers(workers, 0, "back to zero", time.Now())
}

// externalTrigger has the pool wake by the scaler of the release.
func (s *scenario) externalTrigger(r *release, workers *asked) {
	s.Helper()
	r.set("autoscaling.trigger", "external")
	r.set("autoscaling.scaler.pushInterval", "500ms")
	r.apply()
	if suite.cluster != nil { // where KEDA is no pod, and cannot resolve the name of a Service
		address := s.kubectl("get", "service", r.fullName()+"-scaler", "--output=jsonpath={.spec.clusterIP}")
		s.kubectl("patch", "scaledobject", r.fullName(), "--type=json",
			fmt.Sprintf(`--patch=[{"op":"replace","path":"/spec/triggers/0/metadata/scalerAddress","value":"%s:9090"}]`, address))
	}
	s.eventually("KEDA hears from the scaler", func() error {
		if status := s.kubectl("get", "scaledobject", r.fullName(), "--output=jsonpath={.status.conditions[?(@.type==\"Ready\")].status}"); status != "True" {
			return fmt.Errorf("the ScaledObject is not ready: %q", status)
		}
		return nil
	})
	r.waitForWorkers(workers, 0, "", time.Now())
	began := time.Now()
	require.NoError(s, s.site.Burst(s.ctx, 1))
	s.requireFlow()
	s.measured("first event, from zero workers, trigger external\tcommit → stored %s", round(s.site.Longest(began, time.Now())))
	r.waitForWorkers(workers, 0, "back to zero, trigger external", time.Now())
}

// startKEDA runs KEDA until the test is over and its namespace is gone. An existing cluster must have it.
func startKEDA(t *testing.T) *scaling.KEDA {
	t.Helper()
	if suite.cluster == nil {
		_, err := suite.client.Discovery().ServerResourcesForGroupVersion("keda.sh/v1alpha1")
		require.NoError(t, err, "scenario e needs KEDA, which this cluster does not have")
		return nil
	}
	ctx, cancel := context.WithTimeout(t.Context(), ceiling)
	defer cancel()
	keda, err := scaling.Start(ctx, suite.cluster.Plane(), suite.KEDA)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, keda.Close()) })
	return keda
}

// asked remembers how many workers the Deployment asked for, over time.
type asked struct {
	mu   sync.Mutex
	seen []look
}

type look struct {
	at time.Time
	n  int
}

// follow begins to look, until the test ends.
func (r *release) follow() *asked {
	r.Helper()
	w := &asked{}
	ctx, cancel := context.WithCancel(r.ctx)
	ask := func() {
		d, err := suite.client.AppsV1().Deployments(r.namespace).Get(ctx, r.fullName(), metav1.GetOptions{})
		if err != nil || d.Spec.Replicas == nil {
			return // the next look tells
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.seen = append(w.seen, look{time.Now(), int(*d.Spec.Replicas)})
	}
	ask()
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				ask()
			case <-ctx.Done():
				return
			}
		}
	}()
	r.Cleanup(func() { cancel(); <-done })
	return w
}

// now is how many workers are asked for.
func (w *asked) now() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.seen) == 0 {
		return -1
	}
	return w.seen[len(w.seen)-1].n
}

// least and most are over all looks since a time, and the one before.
func (w *asked) least(since time.Time) int {
	return w.fold(since, func(a, b int) int { return min(a, b) })
}
func (w *asked) most(since time.Time) int {
	return w.fold(since, func(a, b int) int { return max(a, b) })
}

func (w *asked) fold(since time.Time, f func(a, b int) int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	value := w.seen[len(w.seen)-1].n
	for i := len(w.seen) - 1; i >= 0; i-- {
		value = f(value, w.seen[i].n)
		if w.seen[i].at.Before(since) {
			break
		}
	}
	return value
}

// waitForWorkers waits until n workers are asked for, and there are just so many.
func (r *release) waitForWorkers(w *asked, n int, what string, since time.Time) {
	r.Helper()
	r.eventually(fmt.Sprintf("%d workers are asked for", n), func() error {
		if now := w.now(); now != n {
			return fmt.Errorf("there are %d", now)
		}
		return nil
	})
	r.waitForPods(n)
	if what != "" {
		r.measured("%s\t%s", what, round(time.Since(since)))
	}
}

func atLeast(have, want int) error {
	if have < want {
		return fmt.Errorf("%d of %d", have, want)
	}
	return nil
}
