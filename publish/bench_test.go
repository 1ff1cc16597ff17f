package publish_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/natstest"
	"github.com/outlane/outlane/publish"
)

// The server is a process of its own, with file storage and one replica; messages have 200 bytes; eight lanes publish at once.
const benchLanes = 8

func benchmark(b *testing.B, batches bool, size int, row string) {
	p := natstest.StartProcess(b)
	js := natstest.JetStream(b, p.URL)
	_, err := js.CreateStream(b.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"bench.>"}, AllowBatchPublish: batches})
	require.NoError(b, err)
	broker := connect(b, publish.Config{URL: p.URL})
	require.NoError(b, broker.WaitConnected(b.Context()))
	data := make([]byte, 200)

	b.ReportAllocs()
	var next atomic.Int64
	var lanes sync.WaitGroup
	for lane := range benchLanes {
		lanes.Go(func() {
			msgs := make([]publish.Message, 0, size)
			for {
				msgs = msgs[:0]
				for range size {
					n := next.Add(1)
					if n > int64(b.N) {
						break
					}
					msgs = append(msgs, publish.Message{
						ID: fmt.Sprintf("0199f3a2-7d3c-7cc1-9d5e-%012d", n), Topic: "bench.payout.generated", Key: "t_555", Seq: n, Partition: lane, Data: data,
					})
					if row != "" {
						msgs[len(msgs)-1].Headers = []byte(row)
					}
				}
				if len(msgs) == 0 {
					return
				}
				if res := broker.Publish(b.Context(), "S", msgs); res.Err != nil {
					b.Error(res.Err)
					return
				}
			}
		})
	}
	lanes.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
}

func BenchmarkFast(b *testing.B) {
	for _, size := range []int{50, 250, 1000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) { benchmark(b, true, size, "") })
	}
}

func BenchmarkFastWithHeaders(b *testing.B) {
	benchmark(b, true, 250, `{"trace_id": "4bf92f3577b34da6a3ce929d0e0e4736", "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}`)
}

func BenchmarkSync(b *testing.B) { benchmark(b, false, 250, "") }

// BenchmarkFloor is the client alone: unordered, with two headers.
func BenchmarkFloor(b *testing.B) {
	p := natstest.StartProcess(b)
	js, err := jetstream.New(natstest.Connect(b, p.URL), jetstream.WithPublishAsyncMaxPending(8*250))
	require.NoError(b, err)
	_, err = js.CreateStream(b.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"bench.>"}})
	require.NoError(b, err)
	data := make([]byte, 200)
	b.ReportAllocs()
	var next atomic.Int64
	var lanes sync.WaitGroup
	for range benchLanes {
		lanes.Go(func() {
			for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
				m := &nats.Msg{Subject: "bench.payout.generated", Data: data, Header: nats.Header{
					publish.HeaderID: {fmt.Sprintf("0199f3a2-7d3c-7cc1-9d5e-%012d", n)}, "Nats-Expected-Stream": {"S"},
				}}
				if _, err := js.PublishMsgAsync(m); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	lanes.Wait()
	<-js.PublishAsyncComplete()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
}
