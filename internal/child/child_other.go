//go:build !linux

package child

import "syscall"

// Attributes are those of a process that is to be started.
func Attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
