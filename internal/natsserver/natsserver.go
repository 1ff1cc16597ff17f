// Package natsserver runs NATS servers with JetStream inside this process, for `outlane demo` and for tests.
//
// What it promises: a server listens on 127.0.0.1 only unless told otherwise, and keeps its port and its data when it is stopped and started again. A folder that
// it made itself is removed by Close.
//
// What it does not promise: surviving this process, or dying as a killed process does: Stop lets the server write what it holds (see
// natstest.StartProcess for one that can be killed). Nothing here is meant for a server that holds data somebody needs.
//
// The methods of Server may be called from any goroutine; they take turns.
package natsserver

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/outlane/outlane/internal/port"
)

// Options describe a server. The zero value is a server of its own on a free port with a folder of its own.
type Options struct {
	Name     string
	Host     string // address to listen on for clients; empty: 127.0.0.1
	Port     int    // 0: a free one, kept for later starts
	StoreDir string // empty: a temporary folder, removed by Close
	LogFile  string // empty: no log
	Cluster  Cluster
	// Configure may change the server's own options, at every start, after the rest was filled in.
	Configure func(*server.Options) `json:"-"`
}

// Cluster makes a server one of several. Every member needs the same Name and all members' Routes.
type Cluster struct {
	Name   string // empty: no cluster
	Port   int
	Routes []string // nats://127.0.0.1:port of each member
	// NoAdvertise keeps the members' addresses from clients.
	NoAdvertise bool
}

// startTimeout bounds how long a server may take to accept connections. It is generous: a loaded machine is no failure.
const startTimeout = time.Minute

// JetStream's limits are set, so that the server does not measure the machine; neither is reserved.
const (
	maxMemory = 1 << 32
	maxStore  = 1 << 40
)

// Server is a NATS server in this process.
type Server struct {
	mu      sync.Mutex
	opt     Options
	ownDir  bool
	running *server.Server
}

// Start runs a server and returns when it accepts connections.
func Start(opt Options) (*Server, error) {
	s := &Server{opt: opt}
	if opt.StoreDir == "" {
		dir, err := os.MkdirTemp("", "outlane-nats-")
		if err != nil {
			return nil, fmt.Errorf("make a folder for the server: %w", err)
		}
		s.opt.StoreDir, s.ownDir = dir, true
	}
	if err := s.firstStart(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// freePortTries is how many ports are tried: one that was free a moment ago may be somebody's connection now.
const freePortTries = 10

func (s *Server) firstStart() error {
	if s.opt.Port != 0 {
		return s.Start()
	}
	for tries := freePortTries; ; tries-- {
		var err error
		if s.opt.Port, err = port.Reserve(); err != nil {
			return err
		}
		if err = s.Start(); tries == 1 || !errors.Is(err, syscall.EADDRINUSE) {
			return err
		}
	}
}

// Start runs the server again after Stop, on the same port with the same data. It does nothing if the server runs.
func (s *Server) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running != nil {
		return nil
	}
	if err := s.opt.checkPort(); err != nil {
		return err
	}
	opts, err := s.opt.serverOptions()
	if err != nil {
		return err
	}
	srv, err := server.NewServer(opts)
	if err != nil {
		return fmt.Errorf("make the server: %w", err)
	}
	var said lastError
	if s.opt.LogFile != "" {
		srv.ConfigureLogger()
	} else {
		srv.SetLogger(&said, false, false)
	}
	srv.Start()
	if !srv.ReadyForConnections(startTimeout) || srv.Addr() == nil {
		srv.Shutdown()
		srv.WaitForShutdown()
		return fmt.Errorf("start the server on port %d: it does not accept connections: %s", opts.Port, said.String())
	}
	s.running = srv
	return nil
}

func (o Options) host() string { return cmp.Or(o.Host, "127.0.0.1") }

func (o Options) address() string { return net.JoinHostPort(o.host(), strconv.Itoa(o.Port)) }

// checkPort fails at once on a port that is taken: the server itself would only say so in its log.
func (o Options) checkPort() error {
	l, err := net.Listen("tcp", o.address())
	if err != nil {
		return fmt.Errorf("start the server: %w", err)
	}
	return l.Close()
}

func (o Options) serverOptions() (*server.Options, error) {
	opts := &server.Options{
		ServerName:         o.Name,
		Host:               o.host(),
		Port:               o.Port,
		JetStream:          true,
		JetStreamMaxMemory: maxMemory,
		JetStreamMaxStore:  maxStore,
		StoreDir:           filepath.Clean(o.StoreDir),
		NoSigs:             true,
		// The server's own values, minutes, are for thousands of clients.
		LameDuckDuration:    2 * time.Second,
		LameDuckGracePeriod: 200 * time.Millisecond,
		NoLog:               o.LogFile == "",
		LogFile:             o.LogFile,
	}
	if o.Cluster.Name != "" {
		opts.Cluster = server.ClusterOpts{Name: o.Cluster.Name, Host: "127.0.0.1", Port: o.Cluster.Port, NoAdvertise: o.Cluster.NoAdvertise}
		for _, route := range o.Cluster.Routes {
			u, err := url.Parse(route)
			if err != nil {
				return nil, fmt.Errorf("read a route: %w", err)
			}
			opts.Routes = append(opts.Routes, u)
		}
	}
	if o.Configure != nil {
		o.Configure(opts)
	}
	return opts, nil
}

// lastError is a log that keeps the last error.
type lastError struct {
	mu   sync.Mutex
	text string
}

func (l *lastError) keep(format string, args []any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = fmt.Sprintf(format, args...)
}

// String is the error.
func (l *lastError) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text
}

// The methods of server.Logger.
func (l *lastError) Noticef(string, ...any)            {}
func (l *lastError) Warnf(string, ...any)              {}
func (l *lastError) Debugf(string, ...any)             {}
func (l *lastError) Tracef(string, ...any)             {}
func (l *lastError) Errorf(format string, args ...any) { l.keep(format, args) }
func (l *lastError) Fatalf(format string, args ...any) { l.keep(format, args) }

// Stop ends the server and returns when it has ended. Its port and data stay for Start.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil {
		return
	}
	s.running.Shutdown()
	s.running.WaitForShutdown()
	s.running = nil
}

// LameDuck ends the server the gentle way: leaders move away, clients are told and then closed one by one. It returns when the server has
// ended.
func (s *Server) LameDuck() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil {
		return
	}
	s.running.LameDuckShutdown()
	s.running.WaitForShutdown()
	s.running = nil
}

// Close stops the server and removes its folder, if Start made it.
func (s *Server) Close() {
	s.Stop()
	if s.ownDir {
		_ = os.RemoveAll(s.opt.StoreDir) // a temporary folder: what is left is the system's to clean
	}
}

// URL is the address for clients. It stays the same over Stop and Start.
func (s *Server) URL() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return "nats://" + s.opt.address()
}

// StoreDir is the folder with the server's data.
func (s *Server) StoreDir() string { return s.opt.StoreDir }

// NATS is the running server itself, nil while it is stopped.
func (s *Server) NATS() *server.Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running
}

// Reload changes the options of the running server, and of later starts, as far as the server can.
func (s *Server) Reload(configure func(*server.Options)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil {
		return errors.New("reload the server: it is stopped")
	}
	s.opt.Configure = configure
	opts, err := s.opt.serverOptions()
	if err != nil {
		return err
	}
	if err := s.running.ReloadOptions(opts); err != nil {
		return fmt.Errorf("reload the server: %w", err)
	}
	return nil
}
