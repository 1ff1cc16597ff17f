package sandbox

import "syscall"

// processAttributes give a worker a process group of its own, so that Ctrl-C reaches only this process, and end it when this process is killed.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
