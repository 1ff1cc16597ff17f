package stress_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/outlane/outlane/internal/crash"
)

// everyday are the points that a worker comes to as long as there is anything to do.
var everyday = []string{crash.Claiming, crash.Claimed, crash.Checked, crash.Acknowledged, crash.Marking, crash.Marked, crash.HorizonSaved, crash.CursorsSaved}

// keepDying runs workers in two places, each of which dies at a point and is followed by the next one.
func (s *scene) keepDying(t *testing.T) {
	t.Helper()
	var places sync.WaitGroup
	for place := range 2 {
		places.Go(func() {
			r := rand.New(rand.NewPCG(uint64(place), 1))
			for n := range 3 {
				point, times := everyday[r.IntN(len(everyday))], 1+r.IntN(2)
				if point == crash.Claiming || point == crash.Claimed {
					times = 1 // it may claim everything at once
				}
				w := s.worker(fmt.Sprintf("w-%d-%d", place, n), fmt.Sprint(crash.CrashVariable, "=", point, ":", times))
				died(w, t)
			}
		})
	}
	places.Wait()
}
