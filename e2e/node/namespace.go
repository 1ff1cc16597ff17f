package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/outlane/outlane/internal/child"
)

// Address is the node's own. Servers that pods are to reach listen on it.
const Address = "10.250.0.1"

const insideEnv = "OUTLANE_E2E_INSIDE"

// Inside says whether this process runs in the namespace.
func Inside() bool { return os.Getenv(insideEnv) != "" }

// Enter makes the namespace, runs this program again inside it, with the same arguments and some more variables, and takes everything of the namespace
// down when that has ended, or when the context has, which ends it. It returns the exit code.
func Enter(ctx context.Context, name string, env ...string) (code int, err error) {
	unlock, err := lock(name)
	if err != nil {
		return 0, err
	}
	defer unlock()
	if err := Clean(name); err != nil { // of a run that was killed
		return 0, err
	}
	defer func() { err = errors.Join(err, Clean(name)) }()
	if err := makeNamespace(name); err != nil {
		return 0, err
	}
	program, err := os.Executable()
	if err != nil {
		return 0, fmt.Errorf("find this program: %w", err)
	}
	args := append([]string{"--net=" + namespaceFile(name), "--", program}, os.Args[1:]...)
	cmd := exec.CommandContext(ctx, "nsenter", args...) // not `ip netns exec`, which hides the cgroups
	cmd.Env = append(append(os.Environ(), insideEnv+"="+name), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = nil, os.Stdout, os.Stderr
	cmd.SysProcAttr = child.Attributes()
	err = cmd.Run()
	var ended *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return 0, fmt.Errorf("run inside the namespace: %w", context.Cause(ctx))
	case errors.As(err, &ended):
		return ended.ExitCode(), nil
	case err != nil:
		return 0, fmt.Errorf("run inside the namespace: %w", err)
	}
	return 0, nil
}

func namespaceFile(name string) string { return filepath.Join("/run/netns", name) }

// folder is short, since sockets are in it, whose paths are limited.
func folder(name string) string { return filepath.Join("/run", name) }

func lock(name string) (unlock func(), err error) {
	file, err := os.OpenFile(folder(name)+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock of %s: %w", name, err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("another run has %s: %w", name, err), file.Close())
	}
	return func() { _ = file.Close() }, nil // which unlocks it
}

func makeNamespace(name string) error {
	for _, args := range [][]string{
		{"netns", "add", name},
		{"-n", name, "link", "set", "lo", "up"},
		{"-n", name, "addr", "add", Address + "/32", "dev", "lo"},
		{"-n", name, "route", "add", services, "dev", "lo"},
	} {
		if err := run("ip", args...); err != nil {
			return err
		}
	}
	return nil
}

func run(program string, args ...string) error {
	if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("run %s %s: %w: %s", program, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// Clean ends every process of the namespace and of its pods, and removes what they made. It is no error if there is nothing.
func Clean(name string) error {
	endProcesses(name)
	errs := []error{unmount(folder(name) + "/"), removeCgroups(name)}
	if _, err := os.Stat(namespaceFile(name)); err == nil {
		errs = append(errs, run("ip", "netns", "del", name))
	}
	errs = append(errs, removeLeftovers(name), os.RemoveAll(folder(name)))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("clean up after %s: %w", name, err)
	}
	return nil
}

// grace is how long the guards of servers have to remove their folders before they are ended, too.
const grace = 5 * time.Second

func endProcesses(name string) {
	deadline := time.Now().Add(grace)
	for {
		kill(podProcesses(name))
		all := namespaceProcesses(name)
		if len(all) == 0 && len(podProcesses(name)) == 0 {
			return
		}
		if time.Now().After(deadline) {
			kill(all)
		} else {
			kill(shims(all))
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func kill(pids []int) {
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended meanwhile
	}
}

// namespaceProcesses are those that are in the network namespace itself. Pods have namespaces of their own.
func namespaceProcesses(name string) (pids []int) {
	var want syscall.Stat_t
	if syscall.Stat(namespaceFile(name), &want) != nil {
		return nil
	}
	found, err := filepath.Glob("/proc/[0-9]*/ns/net")
	if err != nil {
		return nil
	}
	for _, link := range found {
		var is syscall.Stat_t
		if syscall.Stat(link, &is) == nil && is.Ino == want.Ino && is.Dev == want.Dev {
			if pid, err := strconv.Atoi(strings.Split(link, "/")[2]); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// shims are the parents of containers, which nothing else ends.
func shims(pids []int) (shims []int) {
	for _, pid := range pids {
		comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		if err == nil && strings.HasPrefix(string(comm), "containerd-shim") {
			shims = append(shims, pid)
		}
	}
	return shims
}

func unmount(under string) error {
	text, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return fmt.Errorf("read the mounts: %w", err)
	}
	lines := strings.Split(string(text), "\n")
	var errs []error
	for i := len(lines) - 1; i >= 0; i-- { // the last first, since it may lie in an earlier one
		fields := strings.Fields(lines[i])
		if len(fields) > 1 && strings.HasPrefix(fields[1], under) {
			if err := syscall.Unmount(fields[1], syscall.MNT_DETACH); err != nil {
				errs = append(errs, fmt.Errorf("unmount %s: %w", fields[1], err))
			}
		}
	}
	return errors.Join(errs...)
}

// removeLeftovers removes what containerd and the kubelet keep at fixed places.
func removeLeftovers(name string) error {
	var gone []string
	addresses, err := filepath.Glob(filepath.Join(folder(name), "containerd/state/io.containerd.runtime.v2.task/k8s.io/*/address"))
	if err != nil {
		return err
	}
	for _, file := range addresses { // sockets of shims
		if text, err := os.ReadFile(file); err == nil {
			gone = append(gone, strings.TrimPrefix(strings.TrimSpace(string(text)), "unix://"))
		}
	}
	results, err := filepath.Glob("/var/lib/cni/results/" + name + "-*") // name, container, interface
	if err != nil {
		return err
	}
	for _, result := range results {
		container := strings.Split(strings.TrimPrefix(filepath.Base(result), name+"-"), "-")[0]
		loopback, err := filepath.Glob("/var/lib/cni/results/*-" + container + "-*")
		if err != nil {
			return err
		}
		gone = append(gone, loopback...)
	}
	logs, err := filepath.Glob("/var/log/containers/*.log")
	if err != nil {
		return err
	}
	for _, link := range logs {
		if to, err := os.Readlink(link); err == nil && strings.HasPrefix(to, folder(name)+"/") {
			gone = append(gone, link)
		}
	}
	var errs []error
	for _, path := range gone {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
