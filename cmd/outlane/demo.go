package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/outlane/outlane/internal/demo"
)

func (a *app) demo() *cobra.Command {
	opts := demo.Defaults()
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run everything on this machine, break some of it, and check every event",
		Long: "Start a private Postgres, a NATS server and a pool of workers, insert the events of a small city, kill a worker, stop NATS for a while, and check\n" +
			"that every event was stored once and in order. Needs PostgreSQL's programs on this machine, and nothing else; leaves nothing behind.\n\n" +
			"Exit codes: 0 nothing was lost, doubled or out of order, 1 something was, or the demo could not run.",
		Example: example("outlane demo", "outlane demo --keep", "outlane demo --events 20000 --teams 50"),
	}
	flags := cmd.Flags()
	flags.BoolVar(&opts.Keep, "keep", false, "leave everything running afterwards, until Ctrl-C")
	flags.IntVar(&opts.Events, "events", opts.Events, "how many events to insert")
	flags.IntVar(&opts.Teams, "teams", opts.Teams, "how many teams the city has")
	flags.IntVar(&opts.Rate, "rate", opts.Rate, "events a second, until the last quarter")
	flags.Uint64Var(&opts.Seed, "seed", opts.Seed, "another number is another city")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		for name, n := range map[string]int{"events": opts.Events, "teams": opts.Teams, "rate": opts.Rate} {
			if n < demo.Least[name] {
				return usagef("--%s is %d; want at least %d", name, n, demo.Least[name])
			}
		}
		program, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find this program, to start workers: %w", err)
		}
		opts.Program, opts.Out, opts.Width = program, a.out, terminalWidth(a.out)
		if err := demo.Run(cmd.Context(), opts); err != nil {
			return fmt.Errorf("demo: %w", err)
		}
		return nil
	}
	return cmd
}
