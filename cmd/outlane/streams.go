package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"time"

	"github.com/spf13/cobra"

	"github.com/outlane/outlane/internal/config"
	"github.com/outlane/outlane/publish"
)

// natsPatience is how long a command waits for NATS to answer.
const natsPatience = 10 * time.Second

func (a *app) streams() *cobra.Command {
	group := &cobra.Command{Use: "streams", Short: "Compare the configured streams with those that exist, and make them"}

	plan := &cobra.Command{
		Use:   "plan",
		Short: "Say what apply would do, and change nothing",
		Long: "Say what apply would do, and change nothing.\n\n" +
			"Exit codes: 0 every stream is as configured, 1 some differ or are missing, 2 the configuration is wrong.",
	}
	planFormat := output(plan, formatJSON)
	plan.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.withStreams(cmd, func(ctx context.Context, b *publish.Broker, specs []publish.StreamSpec) error {
			changes, err := b.Plan(ctx, specs)
			if err != nil {
				return fmt.Errorf("plan streams: %w", err)
			}
			if err := printChanges(a.out, *planFormat, changes, nil); err != nil {
				return err
			}
			for _, c := range changes {
				if c.Action != publish.ActionNone {
					return errFaults
				}
			}
			return nil
		})
	}

	apply := &cobra.Command{
		Use:   "apply",
		Short: "Create the streams that are missing; with --update also change those that differ",
		Long: "Create the configured streams that are missing. A stream that exists and differs is reported and left alone, unless --update allows to\n" +
			"change it. If something cannot be changed on an existing stream, nothing is done at all.\n\n" +
			"Exit codes: 0 every stream is as configured now, 1 some still differ or something failed, 2 the configuration is wrong.",
		Example: example("outlane streams apply --config outlane.yaml", "outlane streams apply --update"),
	}
	update := apply.Flags().Bool("update", false, "change streams that exist and differ")
	applyFormat := output(apply, formatJSON)
	apply.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.withStreams(cmd, func(ctx context.Context, b *publish.Broker, specs []publish.StreamSpec) error {
			changes, err := b.Apply(ctx, specs, publish.ApplyOptions{AllowUpdate: *update})
			var left *publish.UpdateNeededError
			if err != nil && !errors.As(err, &left) {
				return fmt.Errorf("apply streams: %w", err)
			}
			done := map[publish.Action]string{publish.ActionCreate: "created"}
			if *update {
				done[publish.ActionUpdate] = "changed"
			}
			if err := printChanges(a.out, *applyFormat, changes, done); err != nil {
				return err
			}
			if left != nil {
				return fmt.Errorf("apply streams: %w; give --update to change them", left)
			}
			return nil
		})
	}
	group.AddCommand(plan, apply)
	return group
}

// withStreams runs do with a connection that works, and the configured streams.
func (a *app) withStreams(cmd *cobra.Command, do func(context.Context, *publish.Broker, []publish.StreamSpec) error) error {
	cfg, err := a.load(cmd, "nats.url")
	if err != nil {
		return err
	}
	if len(cfg.Streams) == 0 {
		return usagef("no streams are configured; list them under streams in the file that --%s or %s names", config.FileFlag, config.FileEnv)
	}
	return a.withNATS(cmd.Context(), "outlane streams", func(b *publish.Broker) error {
		return do(cmd.Context(), b, streamSpecs(cfg.Streams))
	})
}

// withNATS runs do with a connection that works.
func (a *app) withNATS(ctx context.Context, name string, do func(*publish.Broker) error) error {
	b, err := a.connect(slog.New(slog.DiscardHandler), name, nil)
	if err != nil {
		return err
	}
	defer b.Close()
	waiting, cancel := context.WithTimeout(ctx, natsPatience)
	defer cancel()
	if err := b.WaitConnected(waiting); err != nil {
		return fmt.Errorf("reach NATS at nats.url: %w", err)
	}
	return do(b)
}

func streamSpecs(streams []config.Stream) []publish.StreamSpec {
	specs := make([]publish.StreamSpec, len(streams))
	for i, s := range streams {
		specs[i] = publish.StreamSpec{
			Name: s.Name, Subjects: s.Subjects, Replicas: s.Replicas, Storage: s.Storage, DuplicateWindow: s.DuplicateWindow, MaxAge: s.MaxAge,
			MaxBytes: int64(s.MaxBytes), Retention: s.Retention, Discard: s.Discard, AllowBatchPublish: s.AllowBatchPublish,
		}
	}
	return specs
}

type changeView struct {
	Stream string      `json:"stream"`
	Action string      `json:"action"`
	Fields []fieldView `json:"fields"`
}

type fieldView struct {
	Field      string `json:"field"`
	From       string `json:"from"`
	To         string `json:"to"`
	Impossible bool   `json:"impossible"`
}

// printChanges shows a plan; done has other words for the actions that were carried out.
func printChanges(w io.Writer, f format, changes []publish.Change, done map[publish.Action]string) error {
	if f == formatJSON {
		views := []changeView{}
		for _, c := range changes {
			v := changeView{Stream: c.Stream, Action: string(c.Action), Fields: []fieldView{}}
			for _, d := range c.Fields {
				v.Fields = append(v.Fields, fieldView(d))
			}
			views = append(views, v)
		}
		return printJSON(w, map[string]any{"streams": views})
	}
	words := map[publish.Action]string{
		publish.ActionCreate: "is missing", publish.ActionUpdate: "differs", publish.ActionNone: "is as configured",
		publish.ActionImpossible: "differs, and cannot be changed: make it anew, or change the configuration",
	}
	maps.Copy(words, done)
	for _, c := range changes {
		if err := say(w, "%s %s", c.Stream, words[c.Action]); err != nil {
			return err
		}
		for _, d := range c.Fields {
			line := fmt.Sprintf("  %s: %s", d.Field, d.To)
			if c.Action != publish.ActionCreate {
				line = fmt.Sprintf("  %s: %s -> %s", d.Field, d.From, d.To)
			}
			if d.Impossible {
				line += "  (cannot be changed)"
			}
			if err := say(w, "%s", plain(line)); err != nil {
				return err
			}
		}
	}
	return nil
}
