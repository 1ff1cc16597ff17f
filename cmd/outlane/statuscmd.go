package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/outlane/outlane/store"
)

func (a *app) status() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show members, partitions, what waits, and what is stuck, why and since when",
		Long: "Show members, partitions, what waits, and what is stuck, why and since when, from what the database knows, and Kubernetes\n" +
			"if that keeps the leases. A lane is a stream and a partition. Up to 10,000 waiting events are counted in each lane; more are shown as at least so many.\n\n" +
			"With --watch it is shown again and again until it is stopped; -o json then prints one object a line.",
		Example: example("outlane status", "outlane status --watch", "outlane status -o json"),
	}
	watch := cmd.Flags().Bool("watch", false, "show it again and again")
	every := cmd.Flags().Duration("every", 2*time.Second, "pause between two looks of --watch")
	format := output(cmd, formatJSON)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *every <= 0 {
			return usagef("--every is %s; want more than 0", *every)
		}
		return a.withStore(cmd, func(ctx context.Context, s *store.Store) error {
			members, closing, err := a.members()
			if err != nil {
				return err
			}
			defer closing()
			if !*watch {
				r, err := lookAt(ctx, s, a.cfg.Database.Schema, members)
				if err != nil {
					return err
				}
				if *format == formatJSON {
					return printJSON(a.out, r)
				}
				return a.writeScreen(r)
			}
			return a.watchStatus(ctx, s, members, *format, *every)
		})
	}
	return cmd
}

// watchStatus shows the status until ctx ends. A look that fails is shown as well, and tried again.
func (a *app) watchStatus(ctx context.Context, s *store.Store, members memberSource, f format, every time.Duration) error {
	clear := ""
	if file, ok := a.out.(*os.File); ok && f == formatText && term.IsTerminal(int(file.Fd())) {
		clear = "\x1b[H\x1b[2J"
	}
	for {
		r, err := lookAt(ctx, s, a.cfg.Database.Schema, members)
		if ctx.Err() != nil {
			return nil
		}
		if err := a.showLook(r, err, f, clear); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(every):
		}
	}
}

func (a *app) showLook(r report, failed error, f format, clear string) error {
	if f == formatJSON {
		var value any = r
		if failed != nil {
			value = map[string]string{"error": a.redact.Text(failed.Error())}
		}
		line, err := json.Marshal(value)
		if err != nil {
			return fmt.Errorf("print: %w", err)
		}
		return say(a.out, "%s", line)
	}
	if clear == "" {
		clear = "\n"
	}
	if _, err := fmt.Fprint(a.out, clear); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	if failed != nil {
		return say(a.out, "%s", plain(a.redact.Text(failed.Error())))
	}
	return a.writeScreen(r)
}

const (
	shownLanes   = 10
	shownStuck   = 12
	longestName  = 60
	longestCause = 240 // the mend is at the end
)

// writeScreen writes a report for people, of about a screen.
func (a *app) writeScreen(r report) error {
	var b bytes.Buffer
	way := "LISTEN works"
	if !r.Database.Listens {
		way = "through a transaction pooler"
	}
	head := fmt.Sprintf("%s  database %s, schema %s (version %d), Postgres %s, %s", r.Time.Local().Format(time.DateTime), r.Database.Name,
		r.Database.Schema, r.Database.SchemaVersion, r.Database.ServerVersion, way)
	if err := say(&b, "%s\n%d partitions by %s, %d owned; sequence at %s, horizon %s behind\n", plain(head), r.Partitions.Count, plain(r.Database.PartitionKeyField),
		r.Partitions.Owned, count(r.Database.LastSeq), count(max(r.Database.LastSeq-r.Database.Horizon, 0))); err != nil {
		return err
	}
	for _, part := range []func(*bytes.Buffer, report) error{writeMembers, writeStreams, writeLanes, writeStuck} {
		if err := part(&b, r); err != nil {
			return err
		}
	}
	if _, err := b.WriteTo(a.out); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

func writeMembers(b *bytes.Buffer, r report) error {
	if len(r.Members) == 0 {
		return say(b, "no members: no worker is running\n")
	}
	rows := [][]string{{"MEMBER", "STATE", "PARTITIONS", "LAST SEEN"}}
	for _, m := range r.Members {
		state := "alive"
		switch {
		case !m.Alive:
			state = "silent"
		case m.Leaving:
			state = "leaving"
		}
		rows = append(rows, []string{m.ID, state, count(int64(m.Partitions)), span(inSeconds(m.SilentSeconds)) + " ago"})
	}
	return section(b, rows)
}

func writeStreams(b *bytes.Buffer, r report) error {
	if len(r.Streams) == 0 {
		return say(b, "no events yet\n")
	}
	rows := [][]string{{"STREAM", "WAITING", "OLDEST", "WAITING LANES", "STUCK LANES", "DEAD LETTERS", "PARKED"}}
	for _, s := range r.Streams {
		rows = append(rows, []string{
			cut(streamName(s.Stream), longestName), waiting(s.lagView), age(s.lagView), count(int64(s.WaitingLanes)), count(int64(s.StuckLanes)), count(s.DeadLetters), count(s.Parked),
		})
	}
	return section(b, rows)
}

func writeLanes(b *bytes.Buffer, r report) error {
	rows := [][]string{{"LANE", "OWNER", "WAITING", "OLDEST", "DEAD LETTERS", "PARKED"}}
	for _, l := range r.Lanes[:min(len(r.Lanes), shownLanes)] {
		rows = append(rows, []string{
			laneName(store.Lane{Stream: l.Stream, Partition: l.Partition}), l.Owner, waiting(l.lagView), age(l.lagView), count(l.DeadLetters), count(l.Parked),
		})
	}
	if len(rows) == 1 {
		return say(b, "nothing waits\n")
	}
	if err := table(b, rows); err != nil {
		return err
	}
	if more := len(r.Lanes) - shownLanes; more > 0 {
		return say(b, "and %d more lanes, less old: see -o json\n", more)
	}
	return say(b, "")
}

func writeStuck(b *bytes.Buffer, r report) error {
	if len(r.Stuck) == 0 {
		return say(b, "nothing is stuck")
	}
	rows := [][]string{{"STUCK", "SINCE", "REASON", "DETAIL"}}
	groups := gather(r.Stuck)
	for _, s := range groups[:min(len(groups), shownStuck)] {
		since := ""
		if s.Since != nil {
			since = fmt.Sprintf("%s (%s)", s.Since.Local().Format(time.TimeOnly), span(max(r.Time.Sub(*s.Since), 0)))
		}
		detail := strings.TrimPrefix(s.Detail, s.Reason+": ")
		rows = append(rows, []string{s.What + " " + cut(s.Name, longestName), since, s.Reason, cut(detail, longestCause)})
	}
	if err := table(b, rows); err != nil {
		return err
	}
	if more := len(groups) - shownStuck; more > 0 {
		return say(b, "and %d more: see -o json", more)
	}
	return nil
}

// gather makes one line of all the lanes of a stream that wait for the same, since the first of them began to.
func gather(stuck []stuckView) []stuckView {
	type cause struct{ stream, reason string }
	var lines []stuckView
	at, partitions := map[cause]int{}, map[cause][]int{}
	for _, s := range stuck {
		if s.What != "lane" {
			lines = append(lines, s)
			continue
		}
		c := cause{s.Lane.Stream, s.Reason}
		i, known := at[c]
		if !known {
			i = len(lines)
			at[c] = i
			lines = append(lines, s)
		}
		partitions[c] = append(partitions[c], s.Lane.Partition)
		if s.Since.Before(*lines[i].Since) {
			lines[i].Since = s.Since
		}
	}
	for c, i := range at {
		if n := len(partitions[c]); n > 1 {
			slices.Sort(partitions[c])
			lines[i].What, lines[i].Name = fmt.Sprintf("%d lanes", n), streamName(c.stream)+"/"+ranges(partitions[c])
		}
	}
	return lines
}

func section(b *bytes.Buffer, rows [][]string) error {
	if err := table(b, rows); err != nil {
		return err
	}
	return say(b, "")
}

func waiting(l lagView) string {
	if l.AtLeast {
		return "at least " + count(l.Waiting)
	}
	return count(l.Waiting)
}

func age(l lagView) string {
	if l.Waiting == 0 {
		return ""
	}
	return span(inSeconds(l.OldestSeconds))
}

func inSeconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
