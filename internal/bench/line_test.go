package bench

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLineCarriesEverythingLaterAndAllAtOnce(t *testing.T) {
	t.Parallel()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Close() })
	go func() {
		c, err := server.Accept()
		if err == nil {
			_, _ = io.Copy(c, c)
			_ = c.Close()
		}
	}()
	const delay = 20 * time.Millisecond
	l, err := newLine(server.Addr().String(), delay)
	require.NoError(t, err)
	t.Cleanup(l.close)
	conn, err := net.Dial("tcp", l.address())
	require.NoError(t, err)
	began := time.Now()
	go func() {
		for range 100 {
			_, _ = conn.Write([]byte("0123456789"))
		}
	}()
	back := make([]byte, 1000)
	_, err = io.ReadFull(conn, back[:10])
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(began), 2*delay)
	_, err = io.ReadFull(conn, back[10:])
	require.NoError(t, err)
	require.Equal(t, "0123456789", string(back[990:]))
	require.NoError(t, conn.Close())
}
