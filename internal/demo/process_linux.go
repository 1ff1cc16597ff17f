package demo

import "syscall"

// processAttributes give a worker a process group of its own, so that Ctrl-C reaches only the demo, and end it when the demo is killed.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
