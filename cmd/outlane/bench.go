package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/outlane/outlane/internal/bench"
)

func (a *app) bench() *cobra.Command {
	opts := bench.Defaults()
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure on this machine how fast a pool drains a backlog, beside plain pollers",
		Long: "Start a private Postgres, a NATS server and workers, and measure how fast they drain a backlog. Then the same events are drained by the usual\n" +
			"pollers, which take rows by FOR UPDATE SKIP LOCKED and publish them one by one. What comes out of the order of its key is counted on both sides.",
		Example: example("outlane bench", "outlane bench --events 200000 --workers 3 -o json"),
	}
	flags := cmd.Flags()
	flags.IntVar(&opts.Events, "events", opts.Events, "events in the backlog")
	flags.IntVar(&opts.Workers, "workers", opts.Workers, "worker processes")
	flags.IntSliceVar(&opts.Pollers, "pollers", opts.Pollers, "numbers of pollers to compare with")
	format := output(cmd, formatJSON)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		for name, n := range map[string]int{"events": opts.Events, "workers": opts.Workers} {
			if n < 1 {
				return usagef("--%s is %d; want at least 1", name, n)
			}
		}
		for _, n := range opts.Pollers {
			if n < 1 {
				return usagef("--pollers has %d; want at least 1", n)
			}
		}
		program, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find this program, to start workers: %w", err)
		}
		opts.Program = program
		opts.Progress = func(text string) { _ = say(a.err, "%s", text) } // nobody needs it
		results, err := bench.Run(cmd.Context(), opts)
		if err != nil {
			return fmt.Errorf("bench: %w", err)
		}
		if *format == formatJSON {
			return printJSON(a.out, map[string]any{"results": results})
		}
		rows := [][]string{{"", "EVENTS/S", "EVENTS", "STORED", "OUT OF ORDER"}}
		for _, r := range results {
			rows = append(rows, []string{r.Name, count(int64(r.Rate)), count(int64(r.Events)), count(int64(r.Stored)), count(int64(r.OutOfOrder))})
		}
		return table(a.out, rows)
	}
	return cmd
}
