package demo

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// goodbye is how long a worker may take to end after SIGTERM.
const goodbye = 15 * time.Second

// worker is one process of the pool.
type worker struct {
	id, addr, log string
	program       string
	env           []string
	cmd           *exec.Cmd
	ended         chan error // gets the end of cmd
}

func newWorker(program, id, dir string, env []string) (*worker, error) {
	addr, err := freeAddress()
	if err != nil {
		return nil, err
	}
	w := &worker{id: id, addr: addr, log: filepath.Join(dir, id+".log"), program: program}
	w.env = append(append(w.env, env...), "OUTLANE_WORKER_ID="+id, "OUTLANE_HTTP_ADDR="+addr)
	return w, nil
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	return addr, nil
}

// start starts the process, also again after its end.
func (w *worker) start() error {
	log, err := os.OpenFile(w.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", w.id, err)
	}
	defer func() { _ = log.Close() }() // the process has its own copy
	w.cmd = exec.Command(w.program, "worker")
	w.cmd.Env, w.cmd.Stdout, w.cmd.Stderr = w.env, log, log
	w.cmd.SysProcAttr = processAttributes()
	if err := w.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", w.id, err)
	}
	w.ended = make(chan error, 1)
	go func(cmd *exec.Cmd, ended chan<- error) { ended <- cmd.Wait() }(w.cmd, w.ended)
	return nil
}

// alive tells whether the process runs.
func (w *worker) alive() bool { return w.cmd != nil && len(w.ended) == 0 }

// kill ends the process by SIGKILL.
func (w *worker) kill() {
	if w.cmd == nil {
		return
	}
	_ = w.cmd.Process.Signal(syscall.SIGKILL) // it may have ended
	<-w.ended
	w.cmd = nil
}

// stop ends the process by SIGTERM, and by SIGKILL if it takes too long. Its error says that the process did not end as it should.
func (w *worker) stop() error {
	if w.cmd == nil {
		return nil
	}
	defer func() { w.cmd = nil }()
	_ = w.cmd.Process.Signal(syscall.SIGTERM) // as above
	select {
	case err := <-w.ended:
		if err != nil {
			return fmt.Errorf("%s: %w", w.id, err)
		}
		return nil
	case <-time.After(goodbye):
		_ = w.cmd.Process.Signal(syscall.SIGKILL) // as above
		<-w.ended
		return fmt.Errorf("%s: still there %s after SIGTERM", w.id, goodbye)
	}
}

// stopWorkers stops all workers at once.
func (d *demo) stopWorkers() error {
	failed := make(chan error)
	for _, w := range d.workers {
		go func() { failed <- w.stop() }()
	}
	var err error
	for range d.workers {
		err = errors.Join(err, <-failed)
	}
	return err
}

// tail is the end of the worker's log.
func (w *worker) tail() string {
	text, err := os.ReadFile(w.log)
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	const keep = 8
	return strings.Join(lines[max(0, len(lines)-keep):], "\n")
}
