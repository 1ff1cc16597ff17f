package natstest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/natsserver"
)

// A test program becomes a server when it is started as one.
func init() { natsserver.ServeChild() }

// Process is a server that is a process of its own.
type Process struct {
	*natsserver.Process
	URL string
}

// StartProcess runs a server as a process of its own until the test ends. Options cannot set Configure.
func StartProcess(t testing.TB, options ...Option) *Process {
	t.Helper()
	opt := natsserver.Options{StoreDir: t.TempDir()}
	for _, set := range options {
		set(&opt)
	}
	p, err := natsserver.StartProcess(opt)
	if p != nil {
		t.Cleanup(p.Stop)
	}
	require.NoError(t, err)
	return &Process{Process: p, URL: p.URL()}
}

// Start runs the server again after Kill or Stop, on the same port with the same data.
func (p *Process) Start(t testing.TB) {
	t.Helper()
	require.NoError(t, p.Process.Start())
}

// Freeze stops the server as it stands, with its sockets open, until Thaw.
func (p *Process) Freeze(t testing.TB) {
	t.Helper()
	require.NoError(t, p.Process.Freeze())
}

// Thaw lets a frozen server go on.
func (p *Process) Thaw(t testing.TB) {
	t.Helper()
	require.NoError(t, p.Process.Thaw())
}
