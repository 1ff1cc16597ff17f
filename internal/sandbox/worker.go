package sandbox

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/outlane/outlane/internal/child"
	"github.com/outlane/outlane/internal/port"
)

// goodbye is how long a worker may take to end after SIGTERM.
const goodbye = 15 * time.Second

// Worker is one process of a pool.
type Worker struct {
	ID   string
	Addr string // of its probes and metrics
	Log  string // the file

	program string
	env     []string
	cmd     atomic.Pointer[process]
}

type process struct {
	*exec.Cmd
	done chan struct{} // closed at its end
	err  error         // how it ended, after done
}

// StartWorker adds a process to the pool and starts it. See NewWorker.
func (s *Sandbox) StartWorker(id string, env ...string) (*Worker, error) {
	w, err := s.NewWorker(id, env...)
	if err != nil {
		return nil, err
	}
	return w, w.Start()
}

// NewWorker adds a process to the pool that is not started yet. Env is added to its environment, and wins over what the sandbox says. Its methods
// are for one goroutine at a time, unless they say otherwise.
func (s *Sandbox) NewWorker(id string, env ...string) (*Worker, error) {
	addr, err := freeAddress()
	if err != nil {
		return nil, err
	}
	w := &Worker{ID: id, Addr: addr, Log: filepath.Join(s.dir, id+".log"), program: s.program}
	w.env = append(append(s.environment(), "OUTLANE_WORKER_ID="+id, "OUTLANE_HTTP_ADDR="+addr), env...)
	s.Workers = append(s.Workers, w)
	return w, nil
}

// freeAddress is one that stays free while the worker is stopped.
func freeAddress() (string, error) {
	port, err := port.Reserve()
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), nil
}

// Start starts the process, also again after its end.
func (w *Worker) Start() error {
	log, err := os.OpenFile(w.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", w.ID, err)
	}
	defer func() { _ = log.Close() }() // the process has its own copy
	p := &process{Cmd: exec.Command(w.program, "worker"), done: make(chan struct{})}
	p.Env, p.Stdout, p.Stderr, p.SysProcAttr = w.env, log, log, child.Attributes()
	if err := p.Start(); err != nil {
		return fmt.Errorf("start %s: %w", w.ID, err)
	}
	go func() {
		defer close(p.done)
		p.err = p.Wait()
	}()
	w.cmd.Store(p)
	return nil
}

// Alive tells whether the process runs. Any goroutine may ask.
func (w *Worker) Alive() bool {
	p := w.cmd.Load()
	if p == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// PID is the process's number, 0 if there is none.
func (w *Worker) PID() int {
	p := w.cmd.Load()
	if p == nil {
		return 0
	}
	return p.Process.Pid
}

// Signal sends the process a signal; one that has ended does not get it.
func (w *Worker) Signal(sig syscall.Signal) {
	if p := w.cmd.Load(); p != nil {
		_ = p.Process.Signal(sig)
	}
}

// Kill ends the process by SIGKILL.
func (w *Worker) Kill() {
	if p := w.cmd.Swap(nil); p != nil {
		_ = p.Process.Signal(syscall.SIGKILL) // it may have ended
		<-p.done
	}
}

// Stop ends the process by SIGTERM, and by SIGKILL if it takes too long. Its error says that the process did not end as it should.
func (w *Worker) Stop() error {
	p := w.cmd.Swap(nil)
	if p == nil {
		return nil
	}
	_ = p.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-p.done:
		if p.err != nil {
			return fmt.Errorf("%s: %w", w.ID, p.err)
		}
		return nil
	case <-time.After(goodbye):
		_ = p.Process.Signal(syscall.SIGKILL) // as above
		<-p.done
		return fmt.Errorf("%s: still there %s after SIGTERM", w.ID, goodbye)
	}
}

// StopWorkers stops all workers at once.
func (s *Sandbox) StopWorkers() error {
	failed := make(chan error)
	for _, w := range s.Workers {
		go func() { failed <- w.Stop() }()
	}
	var err error
	for range s.Workers {
		err = errors.Join(err, <-failed)
	}
	return err
}

// Tail is the end of the worker's log.
func (w *Worker) Tail() string {
	text, err := os.ReadFile(w.Log)
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	const keep = 8
	return strings.Join(lines[max(0, len(lines)-keep):], "\n")
}
