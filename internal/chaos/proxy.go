package chaos

import (
	"fmt"
	"net"
	"sync"
	"time"
)

// proxy stands between one worker and one server, and breaks what goes through. It listens until close.
type proxy struct {
	target string
	listen net.Listener

	mu      sync.Mutex
	changed *sync.Cond
	pairs   map[net.Conn]net.Conn // client: server
	mode    mode
	running sync.WaitGroup
}

// mode is what a proxy does now. The zero value lets everything through.
type mode struct {
	refuse   bool // no connections
	mute     bool // nothing goes to the server: it waits
	deaf     bool // nothing goes to the client: it waits
	slowness time.Duration
}

func newProxy(target string) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for a proxy: %w", err)
	}
	p := &proxy{target: target, listen: l, pairs: map[net.Conn]net.Conn{}}
	p.changed = sync.NewCond(&p.mu)
	p.running.Go(p.accept)
	return p, nil
}

func (p *proxy) addr() string { return p.listen.Addr().String() }

func (p *proxy) accept() {
	for {
		client, err := p.listen.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() { p.serve(client) })
	}
}

// serve connects a client and returns when its connection has ended.
func (p *proxy) serve(client net.Conn) {
	server, err := net.DialTimeout("tcp", p.target, time.Second)
	if err != nil {
		_ = client.Close()
		return
	}
	p.mu.Lock()
	refused := p.mode.refuse
	if !refused {
		p.pairs[client] = server
	}
	p.mu.Unlock()
	if refused {
		_, _ = client.Close(), server.Close()
		return
	}
	var pumps sync.WaitGroup
	pumps.Go(func() { p.pump(client, server, client, func(m mode) bool { return m.mute }) })
	pumps.Go(func() { p.pump(server, client, client, func(m mode) bool { return m.deaf }) })
	pumps.Wait()
	p.mu.Lock()
	delete(p.pairs, client)
	p.mu.Unlock()
}

// pump moves bytes in one direction until either end is closed, then closes both.
func (p *proxy) pump(from, to, client net.Conn, waits func(mode) bool) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && p.pass(client, waits) {
			if _, err := to.Write(buf[:n]); err != nil {
				break
			}
		}
		if err != nil {
			break
		}
	}
	_, _ = from.Close(), to.Close()
}

// pass waits until bytes may go on, and says whether the connection still stands.
func (p *proxy) pass(client net.Conn, waits func(mode) bool) bool {
	p.mu.Lock()
	slowness := p.mode.slowness
	p.mu.Unlock()
	if slowness > 0 {
		<-time.After(slowness)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for waits(p.mode) && p.pairs[client] != nil {
		p.changed.Wait()
	}
	return p.pairs[client] != nil
}

// set changes what the proxy does; cut ends the connections there are, and what waits in them is lost.
func (p *proxy) set(m mode, cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode = m
	if cut {
		for client, server := range p.pairs {
			delete(p.pairs, client)
			_, _ = client.Close(), server.Close()
		}
	}
	p.changed.Broadcast()
}

func (p *proxy) close() {
	_ = p.listen.Close()
	p.set(mode{refuse: true}, true)
	p.running.Wait()
}
