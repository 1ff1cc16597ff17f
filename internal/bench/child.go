package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/pprof"

	"github.com/outlane/outlane/internal/natsserver"
)

const (
	childEnv   = "BENCH_CHILD"
	profileEnv = "BENCH_CPU_PROFILE"
)

// order is what a child process is to do. One field is set.
type order struct {
	NATS    *natsOrder    `json:",omitempty"`
	Floor   *floorOrder   `json:",omitempty"`
	Pollers *pollersOrder `json:",omitempty"`
}

// job is what a child does once.
type job interface {
	prepare(ctx context.Context) error
	work(ctx context.Context) error
	end() // also after prepare has failed
}

// ServeChild makes this process one of those that Run measures, and never returns, if it was started as such.
func ServeChild() {
	if os.Getenv(childEnv) == "" {
		return
	}
	stop, err := StartProfile()
	if err == nil {
		err = errors.Join(serveChild(context.Background(), bufio.NewReader(os.Stdin), os.Stdout), stop())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// StartProfile begins a CPU profile of this process, if Run wants one of it. stop writes it.
func StartProfile() (stop func() error, err error) {
	file := os.Getenv(profileEnv)
	if file == "" {
		return func() error { return nil }, nil
	}
	f, err := os.Create(file)
	if err != nil {
		return nil, fmt.Errorf("make a profile: %w", err)
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(fmt.Errorf("make a profile: %w", err), f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}

// serveChild reads its order, prepares, says "ready", does its work when it is told to, and says "done". The end of its input ends it.
func serveChild(ctx context.Context, in *bufio.Reader, out io.Writer) error {
	line, err := in.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read the order: %w", err)
	}
	var ord order
	if err := json.Unmarshal(line, &ord); err != nil {
		return fmt.Errorf("read the order: %w", err)
	}
	var j job
	switch {
	case ord.NATS != nil:
		return serveNATS(*ord.NATS, in, out)
	case ord.Floor != nil:
		j = &floor{order: *ord.Floor}
	case ord.Pollers != nil:
		j = &pollers{order: *ord.Pollers}
	default:
		return errors.New("read the order: it asks for nothing")
	}
	defer j.end()
	if err := j.prepare(ctx); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(out, "ready"); err != nil {
		return err
	}
	if _, err := in.ReadString('\n'); err != nil {
		return nil // told to end before it began
	}
	if err := j.work(ctx); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(out, "done"); err != nil {
		return err
	}
	_, _ = in.ReadString('\n') // until the end
	return nil
}

func serveNATS(o natsOrder, in *bufio.Reader, out io.Writer) error {
	s, err := natsserver.Start(o.options())
	if err != nil {
		return err
	}
	defer s.Close()
	if _, err := fmt.Fprintln(out, "ready", s.URL()); err != nil {
		return err
	}
	_, _ = in.ReadString('\n') // until the end
	return nil
}
