package outbox_test

import (
	"context"
	"encoding/binary"
	"net"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// wire counts the messages that a client sends to Postgres. The client waits for the server at each Sync or Query message, so those are
// the round trips.
type wire struct {
	net.Conn

	mu      sync.Mutex
	pending []byte
	started bool
	counts  map[byte]int
}

func watched(t *testing.T, url string) (*pgx.Conn, *wire) {
	t.Helper()
	config, err := pgx.ParseConfig(url)
	require.NoError(t, err)
	w := &wire{counts: map[byte]int{}}
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		var d net.Dialer
		conn, err := d.DialContext(ctx, network, address)
		w.Conn = conn
		return w, err
	}
	conn, err := pgx.ConnectConfig(context.Background(), config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close(context.Background())) })
	return conn, w
}

func (w *wire) Write(b []byte) (int, error) {
	n, err := w.Conn.Write(b)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pending = append(w.pending, b[:n]...)
	for {
		kind, header := byte(0), 0 // the first message has no kind
		if w.started {
			header = 1
		}
		if len(w.pending) < header+4 {
			return n, err
		}
		if w.started {
			kind = w.pending[0]
		}
		end := header + int(binary.BigEndian.Uint32(w.pending[header:]))
		if len(w.pending) < end {
			return n, err
		}
		w.pending = w.pending[end:]
		w.started = true
		w.counts[kind]++
	}
}

func (w *wire) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.counts)
}

func (w *wire) roundTrips() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counts['S'] + w.counts['Q']
}

func (w *wire) executed() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counts['E'] + w.counts['Q']
}
