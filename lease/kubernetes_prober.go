package lease

import (
	"context"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// prober asks the API server for one Lease when nothing else is about to show that it can read and store: an open watch does not, for it stays
// open and silent while etcd is away, and through a network that swallows everything. In a pool whose members have one duration, renewals
// show it, and it asks nothing.
type prober struct {
	k       *Kubernetes
	proof   atomic.Int64  // for how long an answer is proof, a time.Duration
	changed chan struct{} // proof is another one
	last    atomic.Int64  // when there was proof, since k.began
	found   chan time.Time
}

func newProber(k *Kubernetes, proof time.Duration) *prober {
	p := &prober{k: k, found: make(chan time.Time, 1), changed: make(chan struct{}, 1)}
	p.proof.Store(int64(proof))
	return p
}

// lasts says for how long an answer is proof from now on.
func (p *prober) lasts(proof time.Duration) {
	if p.proof.Swap(int64(proof)) == int64(proof) {
		return
	}
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// run asks until ctx ends.
func (p *prober) run(ctx context.Context) {
	for {
		proof := time.Duration(p.proof.Load())
		last := p.k.began.Add(time.Duration(max(p.last.Load(), p.k.answered.Load())))
		wait := proof - proof/20 - time.Since(last)
		if wait <= 0 {
			if p.ask(ctx) {
				select {
				case p.found <- time.Now():
				case <-ctx.Done():
				}
			}
			wait = proof - jitter(proof/4) // whatever came of it: an API server in trouble is not asked any more often
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		case <-p.changed:
			timer.Stop()
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
