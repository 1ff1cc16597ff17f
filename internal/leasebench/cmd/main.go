// Command cmd measures what a pool costs a Kubernetes API server: see `make bench-lease`.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/pprof"
	"syscall"
	"time"

	"k8s.io/klog/v2"

	"github.com/outlane/outlane/internal/leasebench"
)

func main() {
	opts := leasebench.Options{Out: os.Stdout, Progress: os.Stderr}
	flag.IntVar(&opts.Partitions, "partitions", 1024, "how many partitions")
	flag.IntVar(&opts.Members, "members", 100, "how many members")
	flag.DurationVar(&opts.Duration, "duration", 10*time.Second, "of the members' leases")
	flag.DurationVar(&opts.Steady, "steady", time.Minute, "how long to measure the steady state")
	profile := flag.String("profile", "", "write a CPU profile of the members to this file")
	flag.Parse()
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, opts, *profile); err != nil {
		fmt.Fprintln(os.Stderr, "bench-lease:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, opts leasebench.Options, profile string) error {
	if profile == "" {
		return leasebench.Run(ctx, opts)
	}
	file, err := os.Create(profile)
	if err != nil {
		return err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return errors.Join(err, file.Close())
	}
	err = leasebench.Run(ctx, opts)
	pprof.StopCPUProfile()
	return errors.Join(err, file.Close())
}
