package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/outlane/outlane/internal/config"
	"github.com/outlane/outlane/internal/verify"
	"github.com/outlane/outlane/publish"
	"github.com/outlane/outlane/store"
)

func (a *app) verify() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Compare the outbox with the streams: is every event stored once, and in order?",
		Long: "Compare the outbox with the streams, while workers run or not, and report events that are lost (marked or passed by, not stored),\n" +
			"doubled, out of order, or unmarked (stored, not marked). It changes nothing. What a stream has dropped by itself is said, not counted.\n\n" +
			"Exit codes: 0 no faults, 1 faults were found or the check failed, 2 the command line or the configuration is wrong.",
		Example: example("outlane verify", "outlane verify --stream STREAM_PAYOUT --after 1200000", "outlane verify -o json"),
	}
	streams := cmd.Flags().StringSlice("stream", nil, "only events of this stream; may be given more than once")
	after := cmd.Flags().Int64("after", 0, "only events with a higher seq")
	settle := cmd.Flags().Duration("settle", verify.DefaultSettle, "how long a stored event may stay unmarked before it is reported")
	complete := cmd.Flags().Bool("complete", false, "no row was ever deleted or archived, so a message without a row is a fault too")
	first := cmd.Flags().Int("first", 20, "list at most so many offenders of each kind")
	format := output(cmd, formatJSON)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case *settle <= 0:
			return usagef("--settle is %s; want more than 0", *settle)
		case *first < 1:
			return usagef("--first is %d; want at least 1", *first)
		}
		return a.withStoreAndNATS(cmd, func(ctx context.Context, s *store.Store, b *publish.Broker) error {
			js, err := b.JetStream()
			if err != nil {
				return fmt.Errorf("reach NATS at nats.url: %w", err)
			}
			// Most of the memory is the checker's, which never becomes garbage.
			defer debug.SetGCPercent(debug.SetGCPercent(25))
			show, done := a.progress()
			report, err := verify.Run(ctx, verify.Options{
				Store: s, JetStream: js, Streams: *streams, After: *after, Settle: *settle, Complete: *complete, First: *first,
				Strict: strict(a.cfg.Routes), Progress: show,
			})
			done()
			if err != nil {
				return fmt.Errorf("verify: %w", err)
			}
			if *format == formatJSON {
				err = printJSON(a.out, report)
			} else {
				err = report.WriteText(a.out)
			}
			if err == nil && !report.Clean() {
				err = errFaults
			}
			return err
		})
	}
	return cmd
}

// withStoreAndNATS runs an operator's command on both.
func (a *app) withStoreAndNATS(cmd *cobra.Command, do func(context.Context, *store.Store, *publish.Broker) error) error {
	if _, err := a.load(cmd, "database.url", "nats.url"); err != nil {
		return err
	}
	return a.withStore(cmd, func(ctx context.Context, s *store.Store) error {
		return a.withNATS(ctx, "outlane "+cmd.Name(), func(b *publish.Broker) error { return do(ctx, s, b) })
	})
}

// progress shows how far a long command is on standard error: a bar on a terminal, a line now and then elsewhere. done ends it.
func (a *app) progress() (show func(verify.Progress), done func()) {
	if width := terminalWidth(a.err); width > 0 {
		return verify.Bar(a.err, width)
	}
	return verify.Lines(a.err), func() {}
}

// terminalWidth is the width of the terminal that w is, 0 if it is none.
func terminalWidth(w io.Writer) int {
	file, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return 0
	}
	const usual = 80 // of terminals that do not know their own
	if width, _, err := term.GetSize(int(file.Fd())); err == nil && width > 0 {
		return width
	}
	return usual
}

// strict says which streams the configured routes fill in order of sequence. The first route that names the stream decides, as for a worker.
func strict(routes []config.Route) func(stream string) bool {
	return func(stream string) bool {
		for _, r := range routes {
			if r.Stream == stream {
				return r.Order == "sequence"
			}
		}
		return false
	}
}
