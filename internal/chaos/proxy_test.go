package chaos

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const ceiling = time.Minute

// echo is a server that sends back what it gets, and tells of it.
func echo(t *testing.T) (addr string, heard <-chan string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	words := make(chan string, 10)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				buf := make([]byte, 100)
				for {
					n, err := conn.Read(buf)
					if err != nil {
						return
					}
					words <- string(buf[:n])
					if _, err := conn.Write(buf[:n]); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String(), words
}

func throughProxy(t *testing.T) (p *proxy, heard <-chan string, dial func() net.Conn) {
	t.Helper()
	addr, heard := echo(t)
	p, err := newProxy(addr)
	require.NoError(t, err)
	t.Cleanup(p.close)
	return p, heard, func() net.Conn {
		conn, err := net.Dial("tcp", p.addr())
		require.NoError(t, err)
		require.NoError(t, conn.SetDeadline(time.Now().Add(ceiling)))
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
}

func send(t *testing.T, conn net.Conn, word string) {
	t.Helper()
	_, err := io.WriteString(conn, word)
	require.NoError(t, err)
}

func receive(t *testing.T, conn net.Conn, word string) {
	t.Helper()
	buf := make([]byte, len(word))
	_, err := io.ReadFull(conn, buf)
	require.NoError(t, err)
	require.Equal(t, word, string(buf))
}

func TestProxyLetsThrough(t *testing.T) {
	p, _, dial := throughProxy(t)
	conn := dial()
	send(t, conn, "one")
	receive(t, conn, "one")
	p.set(mode{slowness: time.Millisecond}, false)
	send(t, conn, "two")
	receive(t, conn, "two")
}

func TestProxyRefusesAndCuts(t *testing.T) {
	p, _, dial := throughProxy(t)
	conn := dial()
	send(t, conn, "one")
	receive(t, conn, "one")
	p.set(mode{refuse: true}, true)
	_, err := conn.Read(make([]byte, 1))
	require.Error(t, err)
	_, err = dial().Read(make([]byte, 1))
	require.Error(t, err)
	p.set(mode{}, false)
	conn = dial()
	send(t, conn, "two")
	receive(t, conn, "two")
}

func TestProxyHoldsBackWhatTheServerSays(t *testing.T) {
	p, heard, dial := throughProxy(t)
	conn := dial()
	p.set(mode{deaf: true}, false)
	send(t, conn, "one")
	require.Equal(t, "one", <-heard)
	p.set(mode{}, false)
	receive(t, conn, "one")

	p.set(mode{deaf: true}, false)
	send(t, conn, "two")
	require.Equal(t, "two", <-heard)
	p.set(mode{}, true)
	_, err := conn.Read(make([]byte, 1))
	require.Error(t, err, "what waited is lost with its connection")
}

func TestProxyHoldsBackWhatTheClientSays(t *testing.T) {
	p, heard, dial := throughProxy(t)
	conn := dial()
	p.set(mode{mute: true, deaf: true}, false)
	send(t, conn, "one")
	require.Empty(t, heard)
	p.set(mode{}, false)
	require.Equal(t, "one", <-heard)
	receive(t, conn, "one")
}
