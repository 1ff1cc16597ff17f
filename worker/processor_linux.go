package worker

import (
	"syscall"
	"time"
)

// holdProcessor sleeps in the kernel, and not on a timer of Go's, for less than the 10 ms after which a processor is taken away.
func holdProcessor() {
	pause := syscall.NsecToTimespec(int64(7 * time.Millisecond))
	_ = syscall.Nanosleep(&pause, nil) // a signal ends it early
}
