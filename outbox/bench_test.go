package outbox_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/pgtest"
	"github.com/outlane/outlane/outbox"
)

// BenchmarkEnqueue measures transactions of 1 to 1,000 events of about 200 bytes, commit included, on a server with fsync off.
func BenchmarkEnqueue(b *testing.B) {
	for _, n := range []int{1, 10, 100, 1000} {
		b.Run(fmt.Sprintf("events=%d", n), func(b *testing.B) {
			benchmark(b, n, func(ctx context.Context, tx pgx.Tx, events []outbox.Event) error {
				return outbox.Enqueue(ctx, tx, events...)
			})
		})
	}
}

// BenchmarkEnqueueCopy is BenchmarkEnqueue for COPY.
func BenchmarkEnqueueCopy(b *testing.B) {
	for _, n := range []int{100, 1000, 10_000} {
		b.Run(fmt.Sprintf("events=%d", n), func(b *testing.B) {
			benchmark(b, n, func(ctx context.Context, tx pgx.Tx, events []outbox.Event) error {
				_, err := outbox.EnqueueCopy(ctx, tx, slices.Values(events))
				return err
			})
		})
	}
}

func benchmark(b *testing.B, n int, enqueue func(context.Context, pgx.Tx, []outbox.Event) error) {
	ctx := context.Background()
	_, role := producer(b)
	conn := pgtest.Connect(b, role)
	events := make([]outbox.Event, n)
	for i := range events {
		events[i] = outbox.Event{Stream: "STREAM_PAYOUT", Topic: "payout.generated",
			Payload: object{"payout_id": "p_001", "team_id": fmt.Sprintf("t_%d", i), "note": strings.Repeat("x", 140)},
			Headers: map[string]string{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}}
	}
	for b.Loop() {
		require.NoError(b, pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return enqueue(ctx, tx, events) }))
	}
	b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "events/s")
}
