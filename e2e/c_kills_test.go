package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

const (
	kills   = 10 // of each kind
	workers = 5
)

// TestC ends workers in each way there is, ten times each, with events all the time. After each the pool is whole again before the next.
func TestC(t *testing.T) {
	s := begin(t, "c", "workers killed, ten times in each way")
	r := s.newRelease("outlane")
	r.set("replicas", workers)
	r.apply()
	r.waitForPool(workers)
	flow := s.site.Steady(s.ctx, 500)
	s.requireFlow()

	for _, way := range []struct {
		name string
		kill func(pod corev1.Pod)
	}{
		{"kubectl delete pod", func(pod corev1.Pod) { s.kubectl("delete", "pod", pod.Name, "--wait=false") }},
		{"kubectl delete pod --force --grace-period=0", func(pod corev1.Pod) { s.kubectl("delete", "pod", pod.Name, "--force", "--grace-period=0") }},
	} {
		var around rounds
		for i := range kills {
			pods := r.pods()
			began := time.Now()
			way.kill(pods[i%len(pods)])
			r.eventually("the pod is replaced", func() error {
				if slices.ContainsFunc(r.pods(), func(p corev1.Pod) bool { return p.UID == pods[i%len(pods)].UID }) {
					return fmt.Errorf("%s is still there", pods[i%len(pods)].Name)
				}
				return nil
			})
			r.waitForPool(workers)
			around.add(r, began)
		}
		around.report(s, way.name)
	}
	if suite.cluster == nil {
		s.measured("SIGKILL in the container\tnot run: it needs a cluster that the suite made itself")
	} else {
		r.killContainers()
	}
	s.stopAndCheck(flow)
}

// killContainers kills the processes of containers, which Kubernetes then starts again: at once the first time, later after a pause, in which the
// others have the partitions.
func (r *release) killContainers() {
	r.Helper()
	var atOnce, later rounds
	for range kills {
		pods := r.pods()
		pod := slices.MinFunc(pods, func(a, b corev1.Pod) int { return int(restarts(a) - restarts(b)) })
		began := time.Now()
		require.NoError(r, suite.cluster.KillContainer(pod.Status.ContainerStatuses[0].ContainerID))
		r.eventually("the container starts again", func() error {
			for _, p := range r.pods() {
				if p.UID == pod.UID && restarts(p) > restarts(pod) {
					return nil
				}
			}
			return fmt.Errorf("%s has not started again", pod.Name)
		})
		r.waitForPool(workers)
		kind := &atOnce
		if restarts(pod) > 0 {
			kind = &later
		}
		kind.add(r, began)
	}
	atOnce.report(r.scenario, "SIGKILL in the container, started again at once")
	later.report(r.scenario, "SIGKILL in the container, started again after a pause")
}

// rounds are repetitions of one fault.
type rounds struct {
	whole   []time.Duration // until the pool was whole again
	longest []time.Duration // commit → stored
}

// add takes a round that is over.
func (l *rounds) add(r *release, began time.Time) {
	r.Helper()
	l.whole = append(l.whole, time.Since(began))
	r.requireFlow()
	l.longest = append(l.longest, r.site.Longest(began, time.Now()))
}

// report says how the rounds went.
func (l *rounds) report(s *scenario, name string) {
	s.measured("%s, %d times\tpool whole after %s, longest commit → stored %s", name, len(l.whole), spread(l.whole), spread(l.longest))
}

func restarts(pod corev1.Pod) int32 { return pod.Status.ContainerStatuses[0].RestartCount }
