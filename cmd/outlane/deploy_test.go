package main

import (
	"context"
	"encoding/json"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/outlane/outlane/internal/natstest"
	"github.com/outlane/outlane/internal/pgtest"
)

func TestSendWaitsUntilTheStreamHasTheEvent(t *testing.T) {
	t.Parallel()
	db, nats := pgtest.Migrated(t, 4), natstest.Start(t)
	stream := makeStream(t, nats.URL, "PAY", "pay.>")
	producer, producerURL := pgtest.Role(t, db)
	require.Zero(t, outlane(t, []string{"OUTLANE_DATABASE_URL=" + db}, "migrate", "grants", "--producer", producer).code)
	env := []string{"OUTLANE_DATABASE_URL=" + producerURL, "OUTLANE_NATS_URL=" + nats.URL}

	r := outlane(t, env, "send", "--topic", "pay.test", "--wait", "100ms")
	require.Equal(t, 1, r.code, "no worker runs")
	require.Contains(t, r.complaint(t), "outlane status says what waits")
	r = outlane(t, env, "send", "--topic", "elsewhere")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.complaint(t), `no stream has this topic: "elsewhere"`)

	start(t, []string{"OUTLANE_DATABASE_URL=" + db, "OUTLANE_NATS_URL=" + nats.URL, "OUTLANE_HTTP_ADDR=127.0.0.1:0"}, "worker")
	r = outlane(t, env, "send", "--topic", "pay.test", "--payload", `{"team_id": "a"}`, "-o", "json")
	require.Zero(t, r.code, r.err)
	var sent struct {
		ID, Stream string
		Sequence   uint64
	}
	require.NoError(t, json.Unmarshal([]byte(r.out), &sent))
	require.Equal(t, "PAY", sent.Stream)
	msg, err := stream.GetMsg(context.Background(), sent.Sequence)
	require.NoError(t, err)
	require.Equal(t, sent.ID, msg.Header.Get("Nats-Msg-Id"))
	r = outlane(t, env, "send", "--topic", "pay.test", "--stream", "PAY")
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.out, "is in stream PAY at sequence 3")
}

// What the answers are is tested in package scaler; here a role without any other right is enough.
func TestScalerAnswersUntilItIsToldToStop(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t, 4)
	role, url := pgtest.Role(t, db)
	require.Zero(t, outlane(t, []string{"OUTLANE_DATABASE_URL=" + db}, "migrate", "grants", "--scaler", role).code)
	p := start(t, []string{"OUTLANE_DATABASE_URL=" + url}, "scaler", "--addr", "127.0.0.1:0", "--push-interval", "10ms")
	addr := p.find(t, "answering KEDA")["addr"].(string)
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	health, err := healthpb.NewHealthClient(conn).Check(context.Background(), &healthpb.HealthCheckRequest{})
	require.NoError(t, err)
	require.Equal(t, healthpb.HealthCheckResponse_SERVING, health.Status)

	// An empty answer is the same on the wire whatever its type, so the health check's messages do for a question without metadata.
	stream, err := conn.NewStream(context.Background(), &grpc.StreamDesc{ServerStreams: true}, "/externalscaler.ExternalScaler/StreamIsActive")
	require.NoError(t, err)
	require.NoError(t, stream.SendMsg(&healthpb.HealthCheckRequest{}))
	require.NoError(t, stream.CloseSend())
	require.NoError(t, stream.RecvMsg(&healthpb.HealthCheckResponse{}))
	require.Equal(t, "told KEDA", p.find(t, "told KEDA")["msg"])
	pgtest.Exec(t, db, "INSERT INTO outbox_events (topic, payload) VALUES ('a', '{}')")
	active := &healthpb.HealthCheckResponse{}
	require.NoError(t, stream.RecvMsg(active))
	require.EqualValues(t, 1, active.Status, "true")
	require.Zero(t, p.stop(t, syscall.SIGTERM))
}
