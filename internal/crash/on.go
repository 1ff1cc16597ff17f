//go:build crashpoints

package crash

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

var (
	crashAt, crashCount = point(CrashVariable)
	pauseAt, pauseCount = point(PauseVariable)
	crashed, paused     atomic.Int64
)

func point(variable string) (name string, count int64) {
	name, n, _ := strings.Cut(os.Getenv(variable), ":")
	count, err := strconv.ParseInt(n, 10, 64)
	if err != nil {
		count = 1
	}
	return name, count
}

// At kills or stops the process if the environment says so, after before.
func At(name string, before ...func()) {
	crash := name == crashAt && crashed.Add(1) == crashCount
	pause := name == pauseAt && paused.Add(1) == pauseCount
	if !crash && !pause {
		return
	}
	for _, f := range before {
		f()
	}
	if crash {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
}
