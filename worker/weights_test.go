package worker_test

import (
	"testing"

	"github.com/outlane/outlane/internal/pooltest"
	"github.com/outlane/outlane/worker"
)

func TestAWorkerTellsHowBusyItsPartitionsAre(t *testing.T) {
	t.Parallel()
	e := pooltest.New(t, 4)
	e.Stream("A", []string{"a.>"})
	e.Start(func(c *worker.Config) { c.Weights = true })
	e.Start()
	e.Eventually(1, "SELECT count(*) FROM outlane_members WHERE weights = '0-1=10' OR weights = '2-3=10'")
	e.Eventually(1, "SELECT count(*) FROM outlane_members WHERE weights = ''")
	for _, key := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		e.Insert("A", "a.x", key, 800)
	}
	e.Drained()
	e.Eventually(1, "SELECT count(*) FROM outlane_members WHERE weights ~ '=[2-9][0-9]|=[0-9]{3}'")
}
