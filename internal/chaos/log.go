package chaos

import (
	"fmt"
	"io"
	"net/url"
	"os"
	"sync"
	"time"
)

// log writes what happens to the screen and to a file, with the time since the beginning. Any goroutine may write.
type log struct {
	mu    sync.Mutex
	out   io.Writer
	file  *os.File
	began time.Time
}

func newLog(out io.Writer, path string) (*log, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("make the log: %w", err)
	}
	return &log{out: out, file: file, began: time.Now()}, nil
}

// restart counts the time from now on.
func (l *log) restart() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.began = time.Now()
}

func (l *log) say(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := fmt.Sprintf("%8.2fs  %s\n", time.Since(l.began).Seconds(), fmt.Sprintf(format, args...))
	// Nobody is told if screen and disk are gone.
	_, _ = io.WriteString(l.out, line)
	_, _ = l.file.WriteString(line)
}

func (l *log) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.file.Close()
}

// hostOf is the host and port of a URL.
func hostOf(address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", fmt.Errorf("read an address: %w", err)
	}
	return u.Host, nil
}
