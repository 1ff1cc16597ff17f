package natstest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/natsserver"
)

const childEnv = "OUTLANE_NATSTEST_CHILD"

// A test program that is started again with the variable set becomes a server instead: so there is nothing to build or install.
func init() {
	if os.Getenv(childEnv) == "" {
		return
	}
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func serve() error {
	in := bufio.NewReader(os.Stdin)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read the options: %w", err)
	}
	var opt natsserver.Options
	if err := json.Unmarshal(line, &opt); err != nil {
		return fmt.Errorf("read the options: %w", err)
	}
	s, err := natsserver.Start(opt)
	if err != nil {
		return err
	}
	fmt.Println(s.URL())
	_, _ = io.Copy(io.Discard, in) // ends when the parent closes the pipe or dies
	s.Stop()
	return nil
}

// Process is a server that is a process of its own.
type Process struct {
	URL   string
	opt   natsserver.Options
	cmd   *exec.Cmd
	stdin io.WriteCloser
}

// StartProcess runs a server as a process of its own until the test ends. Options cannot set Configure.
func StartProcess(t testing.TB, options ...Option) *Process {
	t.Helper()
	p := &Process{opt: natsserver.Options{StoreDir: t.TempDir()}}
	for _, set := range options {
		set(&p.opt)
	}
	require.Nil(t, p.opt.Configure, "a function cannot be given to another process")
	p.Start(t)
	t.Cleanup(p.Stop)
	return p
}

// Start runs the server again after Kill or Stop, on the same port with the same data.
func (p *Process) Start(t testing.TB) {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	options, err := json.Marshal(p.opt)
	require.NoError(t, err)
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), childEnv+"=1")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	p.cmd, p.stdin = cmd, stdin
	_, err = stdin.Write(append(options, '\n'))
	require.NoError(t, err)
	url, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err, "the server did not start")
	p.URL = strings.TrimSpace(url)
	_, err = fmt.Sscanf(p.URL, "nats://127.0.0.1:%d", &p.opt.Port)
	require.NoError(t, err)
}

// Kill ends the server by SIGKILL.
func (p *Process) Kill() { p.end(func() { _ = p.cmd.Process.Kill() }) }

// Stop ends the server in order.
func (p *Process) Stop() { p.end(func() { _ = p.stdin.Close() }) }

func (p *Process) end(how func()) {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
	how()
	_ = p.cmd.Wait() // how it ended says nothing
	_ = p.stdin.Close()
	p.cmd = nil
}

// Freeze stops the server as it stands, with its sockets open, until Thaw.
func (p *Process) Freeze(t testing.TB) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGSTOP))
	require.Eventually(t, p.frozen, Ceiling, time.Millisecond, "the process goes on")
}

// frozen says whether each thread has stopped: the signal takes its time.
func (p *Process) frozen() bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.cmd.Process.Pid))
	if err != nil || len(threads) == 0 {
		return false
	}
	for _, file := range threads {
		text, err := os.ReadFile(file)
		if err != nil {
			return false
		}
		_, rest, _ := strings.Cut(string(text), ") ") // the state follows the name
		if !strings.HasPrefix(rest, "T") {
			return false
		}
	}
	return true
}

// Thaw lets a frozen server go on.
func (p *Process) Thaw(t testing.TB) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGCONT))
}

// PID is the process's number.
func (p *Process) PID() int { return p.cmd.Process.Pid }
