package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/e2e/load"
)

// TestF has two releases in one namespace, each with an outbox of its own: what happens to one is nothing to the other. A third release
// that is pointed at the first one's outbox by mistake is refused.
func TestF(t *testing.T) {
	s := begin(t, "f", "two releases in one namespace, and a third that is refused")
	other, err := suite.servers.Site(s.ctx, "f_other")
	require.NoError(t, err)
	t.Cleanup(other.Close)
	first, second := s.newRelease("orders"), s.newRelease("billing")
	second.use(other)
	for _, r := range []*release{first, second} {
		r.set("replicas", 2)
		r.apply()
	}
	first.waitForPool(2)
	second.waitForPool(2)
	flow, otherFlow := s.site.Steady(s.ctx, 200), other.Steady(s.ctx, 200)
	s.requireFlow()
	requireStored(s, other)

	began := time.Now()
	s.kubectl("delete", "pods", "--selector", second.selector(), "--force", "--grace-period=0")
	second.waitForPool(2)
	requireStored(s, other)
	s.requireFlow()
	s.measured("all pods of one release deleted by force\tits own longest commit → stored %s, the other's %s", round(otherFlow.Longest(began, time.Now())),
		round(flow.Longest(began, time.Now())))
	require.NoError(t, first.isWhole(2))

	third := s.newRelease("mistaken")
	third.set("replicas", 1)
	third.set("migrations.applyStreams", false)
	third.apply("--wait=false")
	s.eventually("the third release is refused", third.isRefused("orders-outlane"))
	require.NoError(t, first.isWhole(2))
	s.helm("uninstall", third.name, "--wait", "--timeout", ceiling.String())

	began = time.Now()
	require.NoError(t, otherFlow.Stop())
	s.measured("the second outbox\t%s", s.settleAndCheck(other))
	s.helm("uninstall", second.name, "--wait", "--timeout", ceiling.String())
	second.waitForPods(0)
	s.requireFlow()
	require.NoError(t, first.isWhole(2))
	s.measured("one release uninstalled\tthe other's longest commit → stored %s", round(flow.Longest(began, time.Now())))
	s.stopAndCheck(flow)
}

// use points the release at a site.
func (r *release) use(site *load.Site) {
	r.set("database.url", site.DatabaseURL)
	r.set("nats.url", site.NATSURL)
	r.set("config.streams", site.Streams)
}

// requireStored requires that everything that was committed until now gets stored.
func requireStored(s *scenario, site *load.Site) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, ceiling)
	defer cancel()
	require.NoError(s, site.Await(ctx, time.Now()))
}

// settleAndCheck is stopAndCheck for a site whose load has ended already. It returns the verdict.
func (s *scenario) settleAndCheck(site *load.Site) string {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, ceiling)
	defer cancel()
	require.NoError(s, site.Settle(ctx))
	verdict, err := site.Check(ctx)
	require.NoError(s, err)
	require.True(s, verdict.Clean(), verdict.String())
	return verdict.String()
}

// isRefused returns nil once a worker of the release has said that the pool owner has the tables, and has ended.
func (r *release) isRefused(owner string) func() error {
	return func() error {
		for _, pod := range r.pods() {
			for _, container := range pod.Status.ContainerStatuses {
				if container.RestartCount == 0 && container.State.Terminated == nil {
					continue
				}
				log := r.try(suite.Kubernetes, "logs", pod.Name, "--all-containers") + r.try(suite.Kubernetes, "logs", pod.Name, "--all-containers", "--previous")
				if strings.Contains(log, owner) {
					return nil
				}
				return fmt.Errorf("it says: %s", log)
			}
		}
		return fmt.Errorf("no worker of %s has ended", r.name)
	}
}
