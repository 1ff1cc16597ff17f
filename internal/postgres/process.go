package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/outlane/outlane/internal/child"
)

// account returns the OS user that servers run as: nil (this one) unless this process is root.
func account() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			continue
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			continue
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("find an unprivileged OS user to run the server: neither postgres nor nobody exists")
}

// newFolder makes a temporary folder that the account owns, and a guard that removes it.
func newFolder(prefix string, cred *syscall.Credential) (string, io.Closer, error) {
	dir, err := os.MkdirTemp("", prefix)
	if err != nil {
		return "", nil, fmt.Errorf("make a folder for the server: %w", err)
	}
	if cred != nil {
		if err := os.Chown(dir, int(cred.Uid), int(cred.Gid)); err != nil {
			_ = os.RemoveAll(dir)
			return "", nil, fmt.Errorf("hand the folder to the server's user: %w", err)
		}
	}
	guard, err := child.StartGuard(guardScript, dir)
	if err != nil {
		_ = os.RemoveAll(dir)
		return "", nil, err
	}
	return dir, guard, nil
}

// guardScript waits for the end of its standard input, which comes when the process that started it is gone, whatever ended it. Then it
// stops the server whose pid file is in the folder, if that is still there, and removes the folder. The working folder is compared, because the number in a stale
// pid file may belong to somebody else by now. A server just being started may write its pid file late, hence the waiting.
const guardScript = `
trap '' INT TERM HUP
read -r _
dir=$1
tries=0
while [ -d "$dir" ] && [ $tries -lt 30 ]; do
	for file in "$dir/data/postmaster.pid" "$dir/pgbouncer.pid"; do
		read -r pid 2>/dev/null <"$file" || continue
		case $(readlink "/proc/$pid/cwd") in
		"$dir" | "$dir"/*) ;;
		*) continue ;;
		esac
		kill -QUIT "$pid" $(cat "/proc/$pid/task/$pid/children")
		kill -CONT "$pid" $(cat "/proc/$pid/task/$pid/children")
		waited=0
		while kill -0 "$pid" && [ $waited -lt 50 ]; do sleep 0.1; waited=$((waited + 1)); done
		kill -KILL "$pid" $(cat "/proc/$pid/task/$pid/children")
		tries=30
	done
	tries=$((tries + 1))
	[ $tries -lt 30 ] && sleep 0.1
done
rm -rf "$dir"
`

// process is a running server program. Its output goes to a file: a child that held this process's own output open would keep
// `go test` waiting for it.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	log  string
}

func launch(dir string, cred *syscall.Credential, name string, args ...string) (*process, error) {
	p := &process{done: make(chan struct{}), log: filepath.Join(dir, "server.log")}
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the server's log: %w", err)
	}
	defer func() { _ = out.Close() }() // the child has its own copy
	p.cmd = command(context.Background(), dir, cred, name, args...)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", filepath.Base(name), err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // how it ended is in its log
	}()
	return p, nil
}

// command runs a program as the account, in the folder, in a process group of its own: an interrupt from the terminal is this process's
// business, which then stops its servers in the order it wants.
func command(ctx context.Context, dir string, cred *syscall.Credential, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = []string{"LC_ALL=C", "TZ=UTC", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: cred}
	return cmd
}

// family returns the process and its children.
func (p *process) family() []int {
	pid := p.cmd.Process.Pid
	pids := []int{pid}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return pids
	}
	for _, field := range strings.Fields(string(text)) {
		if child, err := strconv.Atoi(field); err == nil {
			pids = append(pids, child)
		}
	}
	return pids
}

// stop sends the signal to the process alone, or to it and its children, and waits for the end of all of them.
func (p *process) stop(sig syscall.Signal, children bool) {
	pids := p.family()
	for _, pid := range pids {
		if pid == pids[0] || children {
			_ = syscall.Kill(pid, sig) // one that has ended already is what is wanted
		}
		_ = syscall.Kill(pid, syscall.SIGCONT) // it may be frozen
	}
	<-p.done
	for _, pid := range pids[1:] {
		for syscall.Kill(pid, 0) == nil {
			time.Sleep(2 * time.Millisecond)
		}
	}
}

// tail returns the end of the log, for error messages.
func (p *process) tail() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return ""
	}
	const keep = 1500
	if len(text) > keep {
		text = text[len(text)-keep:]
	}
	return strings.TrimSpace(string(text))
}
