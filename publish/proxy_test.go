package publish_test

import (
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// proxy stands between a Broker and its server, and breaks what goes through.
type proxy struct {
	url    string
	target string
	listen net.Listener

	mu      sync.Mutex
	pairs   map[net.Conn]net.Conn // client: server
	refuse  bool
	cutUp   int  // bytes to let through to the server before everything is cut; -1: no cut
	silent  bool // swallow what the server says
	running sync.WaitGroup
}

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{
		url: "nats://" + l.Addr().String(), target: strings.TrimPrefix(target, "nats://"), listen: l,
		pairs: make(map[net.Conn]net.Conn), cutUp: -1,
	}
	p.running.Add(1)
	go p.accept()
	t.Cleanup(func() {
		_ = p.listen.Close()
		p.Refuse(true)
		p.running.Wait()
	})
	return p
}

func (p *proxy) accept() {
	defer p.running.Done()
	for {
		client, err := p.listen.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		p.mu.Lock()
		if err != nil || p.refuse {
			_ = client.Close()
			if err == nil {
				_ = server.Close()
			}
		} else {
			p.pairs[client] = server
			p.running.Add(2)
			go p.pump(client, client, server, true)
			go p.pump(client, server, client, false)
		}
		p.mu.Unlock()
	}
}

func (p *proxy) pump(client, from, to net.Conn, up bool) {
	defer p.running.Done()
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && !p.pass(to, buf[:n], up) || err != nil {
			p.mu.Lock()
			delete(p.pairs, client)
			p.mu.Unlock()
			_ = from.Close()
			_ = to.Close()
			return
		}
	}
}

func (p *proxy) pass(to net.Conn, b []byte, up bool) bool {
	p.mu.Lock()
	cut := false
	if up && p.cutUp >= 0 {
		if len(b) >= p.cutUp {
			b, cut = b[:p.cutUp], true
			p.cutUp = -1
		} else {
			p.cutUp -= len(b)
		}
	}
	swallow := !up && p.silent
	p.mu.Unlock()
	if !swallow {
		if _, err := to.Write(b); err != nil {
			return false
		}
	}
	return !cut
}

// CutAfter cuts the connection when n more bytes have gone to the server.
func (p *proxy) CutAfter(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutUp = n
}

// Silence swallows what the server says, until it is lifted.
func (p *proxy) Silence(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = on
}

// Refuse cuts all connections and takes no new ones, until it is lifted.
func (p *proxy) Refuse(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = on
	if on {
		for client, server := range p.pairs {
			_ = client.Close()
			_ = server.Close()
		}
	}
}
