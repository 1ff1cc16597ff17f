package natsserver

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/outlane/outlane/internal/child"
)

const (
	childEnv = "OUTLANE_NATSSERVER_CHILD"
	// lameDuck on the child's standard input asks for the gentle end.
	lameDuck = "lame duck\n"
)

// ServeChild makes this process a server, and never returns, if StartProcess has started it. A program that uses StartProcess calls it before
// anything else. So there is nothing to build or install.
func ServeChild() {
	if os.Getenv(childEnv) == "" {
		return
	}
	if err := serveChild(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func serveChild() error {
	in := bufio.NewReader(os.Stdin)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read the options: %w", err)
	}
	var opt Options
	if err := json.Unmarshal(line, &opt); err != nil {
		return fmt.Errorf("read the options: %w", err)
	}
	s, err := Start(opt)
	if err != nil {
		return err
	}
	fmt.Println(s.URL())
	if word, _ := in.ReadString('\n'); word == lameDuck { // without a word the parent has closed the pipe, or is dead
		s.LameDuck()
	}
	s.Stop()
	return nil
}

// Process is a server that is a process of its own, and can be killed or frozen as such. Its methods take turns.
type Process struct {
	mu    sync.Mutex
	opt   Options
	url   string
	cmd   *exec.Cmd // nil while it is stopped
	stdin io.WriteCloser
	done  chan struct{} // closed at the process's end
}

// StartProcess runs a server as a process, and returns when it accepts connections. The options name a folder and cannot set Configure. The
// server dies with this process; Stop ends it before.
func StartProcess(opt Options) (*Process, error) {
	if opt.Configure != nil || opt.StoreDir == "" {
		return nil, errors.New("start a NATS process: it needs a folder, and no function can be given to it")
	}
	p := &Process{opt: opt}
	return p, p.Start()
}

// Start runs the server again after its end, on the same port with the same data. It does nothing if the server runs.
func (p *Process) Start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running() {
		return nil
	}
	if err := p.start(); err != nil {
		return fmt.Errorf("start a NATS process: %w", err)
	}
	return nil
}

func (p *Process) running() bool {
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

func (p *Process) start() error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	options, err := json.Marshal(p.opt)
	if err != nil {
		return err
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), childEnv+"=1")
	cmd.Stderr, cmd.SysProcAttr = os.Stderr, child.Attributes()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	p.cmd, p.stdin, p.done = cmd, stdin, make(chan struct{})
	_, sent := stdin.Write(append(options, '\n'))
	url, err := bufio.NewReader(stdout).ReadString('\n')
	done := p.done
	go func() {
		defer close(done)
		_ = cmd.Wait() // how it ended says nothing
	}()
	if err := errors.Join(sent, err); err != nil {
		p.end(p.kill)
		return err
	}
	p.url = strings.TrimSpace(url)
	if _, err := fmt.Sscanf(p.url, "nats://"+p.opt.host()+":%d", &p.opt.Port); err != nil {
		p.end(p.kill)
		return fmt.Errorf("read the address %q: %w", p.url, err)
	}
	return nil
}

// URL is the address for clients. It stays the same over Stop and Start.
func (p *Process) URL() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.url
}

// PID is the process's number, 0 while it is stopped.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running() {
		return 0
	}
	return p.cmd.Process.Pid
}

// Kill ends the server by SIGKILL, Stop in order, LameDuck the gentle way (see Server.LameDuck). They return when it has ended, and do nothing
// if it is stopped.
func (p *Process) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end(p.kill)
}

// Stop is described at Kill.
func (p *Process) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end(func() { _ = p.stdin.Close() })
}

// LameDuck is described at Kill.
func (p *Process) LameDuck() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end(func() { _, _ = io.WriteString(p.stdin, lameDuck) }) // if it is dead already, that is what is wanted
}

func (p *Process) kill() { _ = p.cmd.Process.Kill() }

// goodbye is how long a server may take to end in order.
const goodbye = 30 * time.Second

func (p *Process) end(how func()) {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
	how()
	select {
	case <-p.done:
	case <-time.After(goodbye):
		p.kill()
		<-p.done
	}
	_ = p.stdin.Close()
	p.cmd = nil
}

// Freeze stops the server as it stands, with its sockets open, until Thaw. It returns when no thread runs any more.
func (p *Process) Freeze() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running() {
		return errors.New("freeze the NATS process: it does not run")
	}
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return fmt.Errorf("freeze the NATS process: %w", err)
	}
	for !child.Stopped(p.cmd.Process.Pid) {
		select {
		case <-p.done:
			return errors.New("freeze the NATS process: it has ended")
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}

// Thaw lets a frozen server go on.
func (p *Process) Thaw() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running() {
		return nil
	}
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		return fmt.Errorf("thaw the NATS process: %w", err)
	}
	return nil
}
