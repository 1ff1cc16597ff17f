package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outlane/outlane/store"
)

const dlqHelp = `An event becomes a dead letter when its stream refused it too often, or can never store it. It stays in the table, and in this list with its
reason, until a person decides: retry sends it again, skip gives it up for good. On a route with onDeadLetter: block, later events of its key
are parked until then, and follow in order.`

func (a *app) dlq() *cobra.Command {
	group := &cobra.Command{Use: "dlq", Short: "List dead letters, send them again or give them up", Long: dlqHelp}
	group.AddCommand(a.dlqList(),
		a.dlqResolve(resolution{
			use: "retry", past: "retried", short: "Send dead letters again, as if they had never been tried",
			do: (*store.Store).RetryDeadLetter,
		}),
		a.dlqResolve(resolution{
			use: "skip", past: "skipped", short: "Give dead letters up for good: they are never sent, and what waits behind them goes on",
			do: (*store.Store).SkipDeadLetter,
		}))
	return group
}

// deadLetterFlags narrow down which dead letters are meant.
type deadLetterFlags struct {
	stream, topic, key string
	cmd                *cobra.Command
}

func addDeadLetterFlags(cmd *cobra.Command) *deadLetterFlags {
	f := &deadLetterFlags{cmd: cmd}
	cmd.Flags().StringVar(&f.stream, "stream", "", "only those of this stream")
	cmd.Flags().StringVar(&f.topic, "topic", "", "only those of this topic")
	cmd.Flags().StringVar(&f.key, "key", "", "only those of this partition key")
	return f
}

func (f *deadLetterFlags) given() bool {
	return f.cmd.Flags().Changed("stream") || f.cmd.Flags().Changed("topic") || f.cmd.Flags().Changed("key")
}

func (f *deadLetterFlags) filter() store.DeadLetterFilter {
	filter := store.DeadLetterFilter{Topic: f.topic}
	if f.cmd.Flags().Changed("stream") {
		filter.Stream = &f.stream
	}
	if f.cmd.Flags().Changed("key") {
		filter.Key = &f.key
	}
	return filter
}

type deadLetterView struct {
	ID         string     `json:"id"`
	Seq        int64      `json:"seq"`
	Stream     string     `json:"stream"`
	Partition  int        `json:"partition"`
	Topic      string     `json:"topic"`
	Key        string     `json:"key"`
	Reason     string     `json:"reason"`
	Error      string     `json:"error"`
	Attempts   int        `json:"attempts"`
	Blocks     bool       `json:"blocks"`
	Parked     int64      `json:"parked"`
	CreatedAt  time.Time  `json:"created_at"`
	ResolvedAt *time.Time `json:"resolved_at,omitempty"`
	Resolution string     `json:"resolution,omitempty"`
}

func viewDeadLetter(e store.DeadLetterEntry) deadLetterView {
	v := deadLetterView{
		ID: e.EventID, Seq: e.Seq, Stream: e.Lane.Stream, Partition: e.Lane.Partition, Topic: e.Topic, Key: e.Key, Reason: e.Reason,
		Error: e.Error, Attempts: e.Attempts, Blocks: e.Blocks, Parked: e.Parked, CreatedAt: e.CreatedAt, Resolution: e.Resolution,
	}
	if !e.ResolvedAt.IsZero() {
		v.ResolvedAt = &e.ResolvedAt
	}
	return v
}

func (a *app) dlqList() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list [ID...]",
		Short:   "List dead letters that wait for a decision",
		Args:    cobra.ArbitraryArgs,
		Example: example("outlane dlq list --stream STREAM_PAYOUT", "outlane dlq list -o json"),
	}
	only := addDeadLetterFlags(cmd)
	resolved := cmd.Flags().Bool("resolved", false, "also those that were retried or skipped")
	limit := cmd.Flags().Int("limit", 100, "at most so many")
	format := output(cmd, formatJSON)
	cmd.RunE = func(cmd *cobra.Command, ids []string) error {
		if *limit < 1 {
			return usagef("--limit is %d; want at least 1", *limit)
		}
		return a.withStore(cmd, func(ctx context.Context, s *store.Store) error {
			filter := only.filter()
			filter.Resolved = *resolved
			entries, err := findDeadLetters(ctx, s, filter, ids, *limit+1)
			if err != nil {
				return err
			}
			more := len(entries) > *limit
			entries = entries[:min(len(entries), *limit)]
			if *format == formatJSON {
				views := make([]deadLetterView, len(entries))
				for i, e := range entries {
					views[i] = viewDeadLetter(e)
				}
				return printJSON(a.out, map[string]any{"dead_letters": views, "more": more})
			}
			return a.printDeadLetters(entries, more)
		})
	}
	return cmd
}

func (a *app) printDeadLetters(entries []store.DeadLetterEntry, more bool) error {
	if len(entries) == 0 {
		return say(a.out, "no dead letters")
	}
	const longestKey, longestError = 40, 240
	rows := [][]string{{"ID", "LANE", "TOPIC", "KEY", "SINCE", "ATTEMPTS", "PARKED", "STATE", "REASON", "ERROR"}}
	for _, e := range entries {
		state, parked := "open", ""
		switch {
		case e.Resolution != "":
			state = e.Resolution
		case e.Blocks:
			state, parked = "blocks its key", count(e.Parked)
		}
		rows = append(rows, []string{
			e.EventID, laneName(e.Lane), e.Topic, cut(e.Key, longestKey), e.CreatedAt.Local().Format(time.DateTime), count(int64(e.Attempts)),
			parked, state, e.Reason,
			cut(strings.TrimPrefix(e.Error, e.Reason+": "), longestError),
		})
	}
	if err := table(a.out, rows); err != nil {
		return err
	}
	if more {
		return say(a.out, "there are more: raise --limit, or narrow it down with --stream, --topic or --key")
	}
	return nil
}

// findDeadLetters lists those with the ids, or all that the filter lets through, at most limit of them.
func findDeadLetters(ctx context.Context, s *store.Store, filter store.DeadLetterFilter, ids []string, limit int) ([]store.DeadLetterEntry, error) {
	if len(ids) == 0 {
		ids = []string{""}
	}
	var found []store.DeadLetterEntry
	for _, id := range ids {
		filter.EventID, filter.Limit = id, limit-len(found)
		if filter.Limit <= 0 {
			break
		}
		entries, err := s.ListDeadLetters(ctx, filter)
		if err != nil {
			return nil, fmt.Errorf("list dead letters: %w", err)
		}
		found = append(found, entries...)
	}
	return found, nil
}

// resolution is one of the two things a person can decide.
type resolution struct {
	use, past, short string
	do               func(*store.Store, context.Context, string) (int64, error)
}

type resolvedView struct {
	ID       string `json:"id"`
	Released int64  `json:"released"`
	Error    string `json:"error,omitempty"`
}

func (a *app) dlqResolve(r resolution) *cobra.Command {
	cmd := &cobra.Command{
		Use:   r.use + " [ID...]",
		Short: r.short,
		Args:  cobra.ArbitraryArgs,
		Long: r.short + ".\n\nName them by id, or choose them with --stream, --topic, --key or --all and confirm with --yes.\n" +
			"Exit codes: 0 all done, 1 some could not be, 2 the command line is wrong.",
		Example: example("outlane dlq "+r.use+" 0198c0de-0000-7000-8000-000000000000", "outlane dlq "+r.use+" --stream STREAM_PAYOUT --yes"),
	}
	only := addDeadLetterFlags(cmd)
	all := cmd.Flags().Bool("all", false, "every open dead letter")
	yes := cmd.Flags().Bool("yes", false, "do it without naming ids")
	format := output(cmd, formatJSON)
	cmd.RunE = func(cmd *cobra.Command, ids []string) error {
		chosen := only.given() || *all
		switch {
		case len(ids) > 0 && chosen:
			return usagef("ids and --stream, --topic, --key or --all were given; choose one of the two")
		case len(ids) == 0 && !chosen:
			return usagef("nothing was chosen; give ids, or --stream, --topic, --key or --all")
		case *all && only.given():
			return usagef("--all was given, and --stream, --topic or --key too; choose one of the two")
		}
		return a.withStore(cmd, func(ctx context.Context, s *store.Store) error {
			if chosen && !*yes {
				n, err := countDeadLetters(ctx, s, only.filter())
				if err != nil {
					return err
				}
				return usagef("%s dead letters would be %s; give --yes to do it", count(int64(n)), r.past)
			}
			results, err := resolve(ctx, s, r, ids, only.filter())
			if err != nil {
				return err
			}
			return a.printResolved(*format, r, results)
		})
	}
	return cmd
}

// page is how many dead letters are listed at a time when all are meant.
const page = 1000

func countDeadLetters(ctx context.Context, s *store.Store, filter store.DeadLetterFilter) (int, error) {
	n := 0
	err := eachPage(ctx, s, filter, func(entries []store.DeadLetterEntry) error {
		n += len(entries)
		return nil
	})
	return n, err
}

func eachPage(ctx context.Context, s *store.Store, filter store.DeadLetterFilter, do func([]store.DeadLetterEntry) error) error {
	filter.Limit = page
	for {
		entries, err := s.ListDeadLetters(ctx, filter)
		if err != nil {
			return fmt.Errorf("list dead letters: %w", err)
		}
		if err := do(entries); err != nil {
			return err
		}
		if len(entries) < page {
			return nil
		}
		last := entries[len(entries)-1]
		filter.AfterSeq, filter.AfterID = last.Seq, last.EventID
	}
}

// resolve decides about each; what could not be done is in the results. Its own error means that the database could not be asked.
func resolve(ctx context.Context, s *store.Store, r resolution, ids []string, filter store.DeadLetterFilter) ([]resolvedView, error) {
	if len(ids) == 0 {
		err := eachPage(ctx, s, filter, func(entries []store.DeadLetterEntry) error {
			for _, e := range entries {
				ids = append(ids, e.EventID)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	results := []resolvedView{}
	for _, id := range ids {
		released, err := r.do(s, ctx, id)
		switch {
		case err == nil:
			results = append(results, resolvedView{ID: id, Released: released})
		case errors.Is(err, store.ErrNoDeadLetter):
			results = append(results, resolvedView{ID: id, Error: store.ErrNoDeadLetter.Error()})
		case errors.Is(err, store.ErrResolved):
			results = append(results, resolvedView{ID: id, Error: store.ErrResolved.Error()})
		default:
			return results, fmt.Errorf("%s dead letter %s, after %d of %d: %w", r.use, id, len(results), len(ids), err)
		}
	}
	return results, nil
}

func (a *app) printResolved(f format, r resolution, results []resolvedView) error {
	failed, released := 0, int64(0)
	for _, v := range results {
		released += v.Released
		if v.Error != "" {
			failed++
		}
	}
	if f == formatJSON {
		if err := printJSON(a.out, map[string]any{r.past: results}); err != nil {
			return err
		}
	} else {
		for _, v := range results {
			if v.Error != "" {
				if err := say(a.out, "%s: %s", plain(v.ID), v.Error); err != nil {
					return err
				}
			}
		}
		if err := say(a.out, "%s dead letters %s, %s parked events released", count(int64(len(results)-failed)), r.past, count(released)); err != nil {
			return err
		}
	}
	if failed > 0 {
		return errFaults
	}
	return nil
}

func streamName(stream string) string {
	if stream == "" {
		return "(no stream)"
	}
	return stream
}

func laneName(lane store.Lane) string {
	return fmt.Sprintf("%s/%d", streamName(lane.Stream), lane.Partition)
}
