package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/outlane/outlane/internal/roundtrip"
	producer "github.com/outlane/outlane/outbox"
)

func (a *app) send() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "send",
		Short: "Send one event through, and wait until its stream has it",
		Long: "Insert one event into the outbox, as a producer does, and wait until its stream has it. It needs the rights of a producer, and may read the\n" +
			"stream. Helm's test runs it.\n\n" +
			"Exit codes: 0 the stream has the event, 1 it has not, or something failed, 2 the command line or the configuration is wrong.",
		Example: example("outlane send --topic outlane.test", `outlane send --topic payout.test --stream STREAM_PAYOUT --payload '{"team_id": "t_1"}' -o json`),
	}
	var event producer.Event
	cmd.Flags().StringVar(&event.Topic, "topic", "", "topic to publish to; one of the streams must have it")
	cmd.Flags().StringVar(&event.Stream, "stream", "", "stream that stores it; empty: the one that has the topic")
	cmd.Flags().StringVar(&event.Key, "key", "", "partition key; empty: as for every event")
	payload := cmd.Flags().String("payload", "{}", "payload, a JSON text")
	wait := cmd.Flags().Duration("wait", 30*time.Second, "how long it may take from the commit on")
	format := output(cmd, formatJSON)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if event.Topic == "" {
			return usagef("no topic was given; give --topic")
		}
		if !json.Valid([]byte(*payload)) {
			return usagef("--payload is no JSON text")
		}
		event.Payload = json.RawMessage(*payload)
		cfg, err := a.load(cmd, "database.url", "nats.url")
		if err != nil {
			return err
		}
		broker, err := a.connect(slog.New(slog.DiscardHandler), "outlane send", nil)
		if err != nil {
			return err
		}
		defer broker.Close()
		ctx, cancel := context.WithTimeout(cmd.Context(), *wait+2*natsPatience)
		defer cancel()
		connecting, connected := context.WithTimeout(ctx, natsPatience)
		defer connected()
		if err := broker.WaitConnected(connecting); err != nil {
			return fmt.Errorf("send: %w", err)
		}
		js, err := broker.JetStream()
		if err != nil {
			return fmt.Errorf("send: %w", err)
		}
		sent, err := roundtrip.Send(ctx, roundtrip.Options{URL: cfg.Database.URL, Schema: cfg.Database.Schema, JetStream: js, Event: event,
			Wait: *wait})
		var invalid *producer.ValidationError
		switch {
		case errors.As(err, &invalid):
			return usageError{fmt.Errorf("send: %w", err)}
		case err != nil:
			return fmt.Errorf("send: %w", err)
		}
		if *format == formatJSON {
			return printJSON(a.out, map[string]any{"id": sent.ID, "stream": sent.Stream, "sequence": sent.Sequence, "seconds": sent.Took.Seconds()})
		}
		return say(a.out, "event %s is in stream %s at sequence %d, after %s", sent.ID, plain(sent.Stream), sent.Sequence, sent.Took.Round(time.Millisecond))
	}
	return cmd
}
