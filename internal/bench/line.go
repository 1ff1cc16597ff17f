package bench

import (
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// line forwards connections to a server, and everything on them later by a delay in each direction, as a long cable does: what is under way does
// not hold up what follows.
type line struct {
	target string
	delay  time.Duration
	listen net.Listener

	mu      sync.Mutex
	closed  bool
	conns   []net.Conn
	running sync.WaitGroup
}

func newLine(target string, delay time.Duration) (*line, error) {
	listen, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for a line: %w", err)
	}
	l := &line{target: target, delay: delay, listen: listen}
	l.running.Go(l.accept)
	return l, nil
}

func (l *line) address() string { return l.listen.Addr().String() }

func (l *line) accept() {
	for {
		near, err := l.listen.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", l.target)
		if err != nil {
			_ = near.Close() // as the server refuses it
			continue
		}
		if !l.keep(near, far) {
			return
		}
		l.running.Go(func() { l.forward(far, near) })
		l.running.Go(func() { l.forward(near, far) })
	}
}

// keep notes connections for close.
func (l *line) keep(conns ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		for _, c := range conns {
			_ = c.Close() // it has carried nothing
		}
		return false
	}
	l.conns = append(l.conns, conns...)
	return true
}

// forward copies until either side ends, and then ends both.
func (l *line) forward(to io.WriteCloser, from io.ReadCloser) {
	type piece struct {
		due  time.Time
		data []byte
	}
	pieces := make(chan piece, 1024)
	l.running.Go(func() {
		defer close(pieces)
		for {
			data := make([]byte, 64<<10)
			n, err := from.Read(data)
			if n > 0 {
				pieces <- piece{time.Now().Add(l.delay), data[:n]}
			}
			if err != nil {
				return
			}
		}
	})
	for p := range pieces {
		time.Sleep(time.Until(p.due))
		if _, err := to.Write(p.data); err != nil {
			break
		}
	}
	_, _ = to.Close(), from.Close() // ends the reader
	for range pieces {
		continue // until it has
	}
}

// close ends all connections, and returns when nothing runs any more.
func (l *line) close() {
	_ = l.listen.Close() // it only listened
	l.mu.Lock()
	l.closed = true
	for _, c := range l.conns {
		_ = c.Close() // it may have ended
	}
	l.mu.Unlock()
	l.running.Wait()
}
