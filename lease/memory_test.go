package lease_test

import (
	"testing"
	"testing/synctest"

	"github.com/outlane/outlane/lease/leasetest"
)

// The whole contract, in a bubble where time is fake: what takes a minute on a real backend takes milliseconds here, and stalls cannot
// happen.
func TestContractInMemory(t *testing.T) {
	t.Parallel()
	for _, c := range leasetest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { c.Test(t, &leasetest.Memory{}) })
		})
	}
}
