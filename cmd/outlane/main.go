// Command outlane moves events from a Postgres outbox table to NATS JetStream, in order. This package is flags and wiring only: what the
// commands do is in worker, store, publish, migrations and internal.
//
// # Exit codes
//
//	0  done, nothing wrong
//	1  something failed, or faults were found
//	2  the command line or the configuration is wrong; nothing was done
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/outlane/outlane/internal/bench"
)

func main() {
	bench.ServeChild()
	stopProfile, err := bench.StartProfile()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(exitFailed)
	}
	ctx, stop := stopOnSignal(context.Background())
	code := run(ctx, os.Args[1:], os.Environ(), os.Stdin, os.Stdout, os.Stderr)
	stop()
	if err := stopProfile(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// stopOnSignal ends the context at the first SIGINT or SIGTERM, and the process at the second.
func stopOnSignal(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		cancel()
		<-signals
		os.Exit(exitFailed)
	}()
	return ctx, cancel
}

// run is the whole program but for the process around it.
func run(ctx context.Context, args, environ []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{environ: environ, out: stdout, err: stderr}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	return a.report(root.ExecuteContext(ctx))
}
