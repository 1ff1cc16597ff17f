package bench

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/outlane/outlane/internal/child"
)

// goodbye is how long a process may take to end when it is told to.
const goodbye = 20 * time.Second

// process is one that this program has started. Its methods are for one goroutine.
type process struct {
	name  string
	log   string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   *bufio.Reader
	done  chan struct{} // closed at its end
	err   error         // how it ended, after done
	ended bool
}

var processes atomic.Int64

// start starts this program again, with arguments and more environment.
func (l *lab) start(name string, env []string, args ...string) (*process, error) {
	n := processes.Add(1)
	p := &process{name: name, log: filepath.Join(l.dir, fmt.Sprintf("%s-%d.log", name, n)), done: make(chan struct{})}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", name, err)
	}
	defer func() { _ = log.Close() }() // the process has its own copy
	p.cmd = exec.Command(l.opts.Program, args...)
	p.cmd.SysProcAttr, p.cmd.Stderr = child.Attributes(), log
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "OUTLANE_") {
			p.cmd.Env = append(p.cmd.Env, e)
		}
	}
	p.cmd.Env = append(p.cmd.Env, env...)
	if l.opts.Profile != "" {
		p.cmd.Env = append(p.cmd.Env, fmt.Sprintf("%s=%s/%s-%s-%d.pprof", profileEnv, l.opts.Profile, l.section, name, n))
	}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	out, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p.cmd.Stdout, p.out = w, bufio.NewReader(out)
	err = p.cmd.Start()
	_ = w.Close() // the process has its own copy
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", name, err), out.Close())
	}
	go func() {
		defer close(p.done)
		p.err = p.cmd.Wait()
	}()
	return p, nil
}

// startChild starts this program as what ord says, and returns when it is ready, with what it says of itself.
func (l *lab) startChild(name string, ord order) (*process, string, error) {
	text, err := json.Marshal(ord)
	if err != nil {
		return nil, "", err
	}
	p, err := l.start(name, []string{childEnv + "=1"})
	if err != nil {
		return nil, "", err
	}
	if _, err := p.stdin.Write(append(text, '\n')); err == nil {
		said, err := p.hear("ready")
		if err == nil {
			return p, said, nil
		}
	}
	return nil, "", errors.Join(fmt.Errorf("start %s: it ended: %s", name, p.tail()), p.end())
}

// hear waits until the child says a word, and returns what follows it.
func (p *process) hear(word string) (string, error) {
	line, err := p.out.ReadString('\n')
	rest, ok := strings.CutPrefix(strings.TrimSpace(line), word)
	if err != nil || !ok {
		return "", fmt.Errorf("%s: it ended: %s", p.name, p.tail())
	}
	return strings.TrimSpace(rest), nil
}

// tell says a word to the child.
func (p *process) tell(word string) error {
	if _, err := io.WriteString(p.stdin, word+"\n"); err != nil {
		return fmt.Errorf("%s: it ended: %s", p.name, p.tail())
	}
	return nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// term asks the process to end, once: a second time would end a worker at once. end must follow.
func (p *process) term() {
	if !p.ended {
		_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	}
}

// end closes the process's input, which ends children, and waits for its end.
func (p *process) end() error {
	if p.ended {
		return nil
	}
	p.ended = true
	_ = p.stdin.Close() // likewise
	select {
	case <-p.done:
		if p.err != nil {
			return fmt.Errorf("%s: %w: %s", p.name, p.err, p.tail())
		}
		return nil
	case <-time.After(goodbye):
		_ = p.cmd.Process.Kill()
		<-p.done
		return fmt.Errorf("%s: it was still there after %s", p.name, goodbye)
	}
}

// tail is the end of the process's log.
func (p *process) tail() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return ""
	}
	const keep = 2000
	return strings.TrimSpace(string(text[max(0, len(text)-keep):]))
}
