package leasebench

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	"github.com/outlane/outlane/lease"
	"github.com/outlane/outlane/lease/leasetest"
)

// pool is the members of a run.
type pool struct {
	opts   Options
	client *rest.Config
	read   atomic.Int64 // bytes that the members have received

	gained atomic.Int64 // partitions that members were given, all told

	mu      sync.Mutex
	members []*member
}

// member is one of the pool, whose work is nothing.
type member struct {
	*lease.Manager
	pool  *pool
	way   *leasetest.Faults
	close func()
	stop  context.CancelFunc
	done  chan struct{}
}

// Gained implements lease.Handler.
func (m *member) Gained(partitions []int) { m.pool.gained.Add(int64(len(partitions))) }

// Release implements lease.Handler.
func (m *member) Release(context.Context, int) {}

// Lost implements lease.Handler.
func (m *member) Lost(int) {}

// countingConn counts what is received.
type countingConn struct {
	net.Conn
	read *atomic.Int64
}

func (c countingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.read.Add(int64(n))
	return n, err
}

// newBackend is a way to the API server that is counted.
func (p *pool) newBackend() (*lease.Kubernetes, error) {
	client := rest.CopyConfig(p.client)
	client.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return countingConn{conn, &p.read}, err
	}
	return lease.NewKubernetes(lease.KubernetesConfig{Client: client, Namespace: "default", Instance: "bench"})
}

// start adds n members at once.
func (p *pool) start(n int) error {
	for range n {
		backend, err := p.newBackend()
		if err != nil {
			return err
		}
		m := &member{pool: p, way: leasetest.NewFaults(backend), close: backend.Close, done: make(chan struct{})}
		m.Manager, err = lease.New(lease.Config{
			ID: lease.NewID("worker"), Partitions: p.opts.Partitions, Backend: m.way, Handler: m, Duration: p.opts.Duration,
		})
		if err != nil {
			return err
		}
		var ctx context.Context
		ctx, m.stop = context.WithCancel(context.Background())
		go func() {
			defer close(m.done)
			_ = m.Run(ctx) // what could not be handed over shows in what is measured
		}()
		p.mu.Lock()
		p.members = append(p.members, m)
		p.mu.Unlock()
	}
	return nil
}

// take removes the n members that have been there longest.
func (p *pool) take(n int) []*member {
	p.mu.Lock()
	defer p.mu.Unlock()
	taken := p.members[:n:n]
	p.members = p.members[n:]
	return taken
}

// end stops members as SIGTERM does, at once, and waits for them.
func end(members []*member) {
	for _, m := range members {
		m.stop()
	}
	for _, m := range members {
		<-m.done
		m.close()
	}
}

// settled waits until the members, and nobody else, work on all partitions, evenly.
func (p *pool) settled(ctx context.Context) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	why := ""
	for {
		if why = p.unsettled(); why == "" {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for the pool to settle: %w: %s", ctx.Err(), why)
		}
	}
}

func (p *pool) unsettled() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	least, most, total := p.opts.Partitions, 0, 0
	for _, m := range p.members {
		s := m.Holding()
		least, most, total = min(least, s), max(most, s), total+s
	}
	if total == p.opts.Partitions && most-least <= 1 {
		return ""
	}
	return fmt.Sprintf("%d members work on %d of %d partitions, %d to %d each", len(p.members), total, p.opts.Partitions, least, most)
}
