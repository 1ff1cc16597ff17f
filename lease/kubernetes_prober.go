package lease

import (
	"context"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// prober asks the API server for one Lease when nothing else has shown for a while that it can read and store: an open watch does not, for
// it stays open and silent while etcd is away, and through a network that swallows everything.
type prober struct {
	k      *Kubernetes
	wanted atomic.Int64 // after how long without proof to ask, a time.Duration
	last   atomic.Int64 // when there was proof, since k.began
	found  chan time.Time
}

func newProber(k *Kubernetes, proof time.Duration) *prober {
	p := &prober{k: k, found: make(chan time.Time, 1)}
	p.wanted.Store(int64(proof / 2))
	return p
}

// run asks until ctx ends.
func (p *prober) run(ctx context.Context) {
	for {
		wanted := time.Duration(p.wanted.Load())
		last := p.k.began.Add(time.Duration(max(p.last.Load(), p.k.answered.Load())))
		wait := wanted - time.Since(last)
		if wait <= 0 {
			if p.ask(ctx) {
				select {
				case p.found <- time.Now():
				case <-ctx.Done():
				}
			}
			wait = wanted / 2
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// ask reads a Lease from where they are stored. That there is none is an answer, too.
func (p *prober) ask(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	_, err := p.k.client.get(ctx, p.k.names.partition(0))
	return err == nil || apierrors.IsNotFound(err)
}
