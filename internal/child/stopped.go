package child

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Stopped says whether a process has been stopped by SIGSTOP, every thread of it: the signal takes its time. It knows only on Linux.
func Stopped(pid int) bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		return false
	}
	for _, file := range threads {
		text, err := os.ReadFile(file)
		if err != nil {
			return false
		}
		_, rest, _ := strings.Cut(string(text), ") ") // the state follows the name
		if !strings.HasPrefix(rest, "T") {
			return false
		}
	}
	return true
}
