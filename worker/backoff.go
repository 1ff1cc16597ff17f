package worker

import (
	"math/rand/v2"
	"time"
)

// maxBackoff is the longest wait between two tries.
const maxBackoff = 60 * time.Second

// backoff is how long to wait after the n-th failure in a row (from 1): 1, 2, 4 … 60 s, less up to a fifth so that lanes spread.
func backoff(n int) time.Duration {
	d := maxBackoff
	if n < 7 {
		d = min(time.Second<<max(n-1, 0), maxBackoff)
	}
	return d - rand.N(d/5)
}

// retryDelay is the wait after the n-th failure in a row of a statement: 50 ms doubling to 5 s, less up to a fifth.
func retryDelay(n int) time.Duration {
	d := 5 * time.Second
	if n < 8 {
		d = min(50*time.Millisecond<<max(n-1, 0), d)
	}
	return d - rand.N(d/5)
}
