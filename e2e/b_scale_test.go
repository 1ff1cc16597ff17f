package e2e

import (
	"testing"
	"time"
)

// TestB changes the number of workers while events come as fast as they do on a busy day: whoever has a partition may not lose it before
// another has it, and nothing may wait for long.
func TestB(t *testing.T) {
	s := begin(t, "b", "1 → 3 → 10 → 2 workers under 1,000 events/s")
	r := s.newRelease("outlane")
	before := 1
	r.set("replicas", before)
	r.apply()
	r.waitForPool(before)
	began := time.Now()
	flow := s.site.Steady(s.ctx, 1000)
	s.eventually("the load is steady", func() error { return atLeast(s.site.Committed(), 5000) })
	s.requireFlow()
	s.measured("longest commit → stored while nothing happens\t%s", round(flow.Longest(began, time.Now())))
	for _, n := range []int{3, 10, 2} {
		began := time.Now()
		r.scale(n)
		r.waitForPool(n)
		took := time.Since(began)
		s.requireFlow()
		s.measured("%d → %d workers\tall partitions shared out after %s, longest commit → stored %s", before, n, round(took), round(flow.Longest(began, time.Now())))
		before = n
	}
	took := time.Since(began)
	s.stopAndCheck(flow)
	s.measured("load\t%.0f events/s, on average", float64(s.site.Committed())/took.Seconds())
}
