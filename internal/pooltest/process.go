package pooltest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/child"
)

// ProcessLease is the lease duration of worker processes. The shortest there is, a second, can run out on a busy machine without anybody having died.
const ProcessLease = "2s"

// Process is a worker that is a process of its own, and can be killed or stopped as such.
type Process struct {
	ID  string
	Log *Log // its own lines; they are in the Env's log as well

	env  *Env
	cmd  *exec.Cmd
	done chan struct{} // closed at its end
}

// Process runs program, which is cmd/outlane, as a worker until the test ends. The id has to be new. Each further setting is a variable of the
// process's environment: NAME=value.
func (e *Env) Process(program, id string, settings ...string) *Process {
	e.T.Helper()
	p := &Process{ID: id, Log: &Log{}, env: e, done: make(chan struct{}), cmd: exec.Command(program, "worker")}
	p.cmd.SysProcAttr = child.Attributes()
	p.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "OUTLANE_DATABASE_URL=" + e.Via, "OUTLANE_NATS_URL=" + e.NATS, "OUTLANE_WORKER_ID=" + id,
		"OUTLANE_HTTP_ADDR=127.0.0.1:0", "OUTLANE_LEASE_DURATION=" + ProcessLease, "OUTLANE_NATS_ACK_TIMEOUT=2s", "OUTLANE_WORKER_DRAIN_TIMEOUT=1m"}, append(e.onKubernetes(), settings...)...)
	out, err := p.cmd.StderrPipe()
	require.NoError(e.T, err)
	require.NoError(e.T, p.cmd.Start())
	go func() {
		defer close(p.done)
		p.read(out)
		_ = p.cmd.Wait() // how it ended is asked of its state
	}()
	e.T.Cleanup(p.Kill)
	return p
}

func (p *Process) read(out io.Reader) {
	for lines := bufio.NewReader(out); ; {
		line, err := lines.ReadString('\n')
		if line != "" {
			_, _ = p.Log.Write([]byte(line)) // a Log takes everything
			_, _ = p.env.Log.Write([]byte(line))
		}
		if err != nil {
			return
		}
	}
}

// Config writes a configuration file and returns the setting that names it.
func (e *Env) Config(text string) string {
	e.T.Helper()
	file := filepath.Join(e.T.TempDir(), "outlane.yaml")
	require.NoError(e.T, os.WriteFile(file, []byte(text), 0o600))
	return "OUTLANE_CONFIG=" + file
}

func (p *Process) signal(s syscall.Signal) {
	p.env.T.Helper()
	require.NoError(p.env.T, p.cmd.Process.Signal(s))
}

// PID is the process's number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Pause stops the process as it stands, with its connections open, until Resume.
func (p *Process) Pause() {
	p.env.T.Helper()
	p.signal(syscall.SIGSTOP)
	p.Paused()
}

// Paused waits until the process has stopped as it stands.
func (p *Process) Paused() {
	p.env.T.Helper()
	p.wait("it is not paused", func() bool { return child.Stopped(p.cmd.Process.Pid) })
}

// Resume lets a paused process go on.
func (p *Process) Resume() {
	p.env.T.Helper()
	p.signal(syscall.SIGCONT)
}

// Terminate tells the process to stop working and end.
func (p *Process) Terminate() {
	p.env.T.Helper()
	p.signal(syscall.SIGTERM)
}

// Kill ends the process by SIGKILL, if it has not ended, and waits for that.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// Ended waits for the process to end by itself, and returns how: an exit code, or the signal that ended it.
func (p *Process) Ended() (code int, by syscall.Signal) {
	p.env.T.Helper()
	p.wait("it does not end", func() bool {
		select {
		case <-p.done:
			return true
		default:
			return false
		}
	})
	status := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return status.ExitStatus(), status.Signal()
	}
	return status.ExitStatus(), 0
}

// Says waits until a line of the log has one of the texts.
func (p *Process) Says(texts ...string) {
	p.env.T.Helper()
	p.wait(fmt.Sprintf("it does not say %q", texts), func() bool {
		for _, text := range texts {
			if p.Log.Has(text) > 0 {
				return true
			}
		}
		return false
	})
}

// Metric reads a number of the process's metrics; 0 if it is not there yet.
func (p *Process) Metric(name string) float64 {
	p.env.T.Helper()
	const started = "serving probes and metrics"
	p.Says(started)
	var line struct{ Addr string }
	require.NoError(p.env.T, json.Unmarshal([]byte(p.Log.find(started)), &line))
	request, err := http.NewRequestWithContext(p.env.T.Context(), http.MethodGet, "http://"+line.Addr+"/metrics", nil)
	require.NoError(p.env.T, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(p.env.T, err)
	defer func() { _ = response.Body.Close() }()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			n, err := strconv.ParseFloat(value, 64)
			require.NoError(p.env.T, err)
			return n
		}
	}
	return 0
}

// Owns is how many partitions have been claimed last by the process.
func (p *Process) Owns() int {
	p.env.T.Helper()
	return p.env.Count("SELECT count(*) FROM outlane_partitions WHERE owner LIKE $1 || '-%'", p.ID)
}

// Alone waits until the process holds and has claimed every partition, and there is no other member.
func (p *Process) Alone() {
	p.env.T.Helper()
	if p.env.Cluster != nil {
		p.env.SharedOnKubernetes(p.ID)
		return
	}
	p.env.Eventually(0, `SELECT count(*) FROM outlane_partitions p LEFT JOIN outlane_leases l USING (partition)
		WHERE p.owner IS DISTINCT FROM l.holder OR p.owner NOT LIKE $1 || '-%' OR 1 <> (SELECT count(*) FROM outlane_members)`, p.ID)
}

func (p *Process) wait(failure string, ok func() bool) {
	p.env.T.Helper()
	if !WaitFor(ok) {
		p.env.T.Fatalf("worker %s: %s\n%s", p.ID, failure, p.env.Log.Tail())
	}
}
