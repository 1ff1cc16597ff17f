package controlplane

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/outlane/outlane/internal/child"
)

// guardScript waits for the end of its standard input, which comes when the process that started it is gone, whatever ended it; the parts
// die with that process. Then it removes the folder.
const guardScript = `trap '' INT TERM HUP; read -r _; sleep 1; rm -rf "$1"`

// process is a running part. Its output goes to a file: a child that held this process's own output open would keep `go test` waiting.
type process struct {
	cmd  *exec.Cmd
	log  string
	done chan struct{} // closed when it has ended
}

func launch(program, log, part string, args ...string) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", part, err)
	}
	defer func() { _ = out.Close() }() // the child has its own copy
	p := &process{cmd: exec.Command(program, append([]string{part}, args...)...), log: log, done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = child.Attributes()
	p.cmd.Dir = filepath.Dir(log)
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", part, err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // how it ended is in its log
	}()
	return p, nil
}

func (p *process) signal(s syscall.Signal, wait bool) {
	_ = p.cmd.Process.Signal(s) // it may have ended already
	if wait {
		<-p.done
	}
}

func (p *process) tail() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	const keep = 2000
	return strings.TrimSpace(string(text[max(0, len(text)-keep):]))
}

// memory reads the resident size in bytes.
func (p *process) memory() int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// freePorts picks ports that nothing listens on, under the range from which the kernel takes ports for outgoing connections: one in that
// range could be taken while a stopped server is to come back to it.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range 500 {
		port := 11000 + rand.IntN(21000)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			return nil, fmt.Errorf("close the probe of port %d: %w", port, err)
		}
		if ports = append(ports, port); len(ports) == n {
			return ports, nil
		}
	}
	return nil, errors.New("find free ports on 127.0.0.1: too many tries failed")
}
