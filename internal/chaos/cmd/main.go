// Command cmd runs a chaos run or a soak: see `make chaos` and `make soak`.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/outlane/outlane/internal/chaos"
	"github.com/outlane/outlane/internal/natsserver"
)

func main() {
	natsserver.ServeChild()
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	var opts chaos.Options
	opts.Out = os.Stdout
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.StringVar(&opts.Program, "program", "bin/outlane", "the outlane executable")
	flags.StringVar(&opts.Dir, "dir", "", "where the folder of a run that fails is left")
	flags.DurationVar(&opts.Duration, "duration", time.Minute, "how long to break things")
	flags.Uint64Var(&opts.Seed, "seed", 0, "the seed of the plan; 0: a new one")
	flags.IntVar(&opts.Rate, "rate", 0, "events a second")
	flags.DurationVar(&opts.Every, "every", chaos.DefaultEvery, "mean time between two faults")
	flags.StringVar(&opts.Leases, "leases", "", "where leases are kept: postgres, or kubernetes, whose servers then fail, too")
	plan := flags.Bool("plan", false, "print the plan and do nothing")
	soak := flags.Bool("soak", false, "break nothing, but restart workers in turn, and look for growth")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if opts.Leases != "" && opts.Leases != "postgres" && opts.Leases != chaos.LeasesKubernetes {
		return fmt.Errorf("-leases is %q; want postgres or %s", opts.Leases, chaos.LeasesKubernetes)
	}
	if opts.Seed == 0 {
		opts.Seed = uint64(time.Now().UnixNano()) % 1_000_000
	}
	if *plan {
		fmt.Print(chaos.PlanOf(opts))
		return nil
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	start := chaos.Run
	if *soak {
		start = chaos.Soak
	}
	err := start(ctx, opts)
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	return err
}
