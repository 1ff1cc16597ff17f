package child

import (
	"fmt"
	"io"
	"os/exec"
	"syscall"
)

// Guard is a small shell script that outlives this process, to clean up after it.
type Guard struct {
	pipe io.Closer
	cmd  *exec.Cmd
}

// StartGuard starts script with dir as its first argument. Its standard input ends when this process has ended, in whatever way, or with Close: so
// the script begins with a `read`.
func StartGuard(script, dir string) (*Guard, error) {
	cmd := exec.Command("/bin/sh", "-c", script, "outlane-guard", dir)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("make the guard's pipe: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the guard: %w", err)
	}
	return &Guard{pipe: pipe, cmd: cmd}, nil
}

// Close lets the script do what it does at the end, and waits for it.
func (g *Guard) Close() error {
	if err := g.pipe.Close(); err != nil {
		return fmt.Errorf("close the guard's pipe: %w", err)
	}
	if err := g.cmd.Wait(); err != nil {
		return fmt.Errorf("wait for the guard: %w", err)
	}
	return nil
}

// End ends the script, which has nothing left to do.
func (g *Guard) End() {
	_ = g.cmd.Process.Kill() // it may have ended already
	_ = g.cmd.Wait()
	_ = g.pipe.Close()
}
