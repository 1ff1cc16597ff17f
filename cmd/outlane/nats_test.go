package main

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/natstest"
)

func TestStreams(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	at := "OUTLANE_NATS_URL=" + server.URL
	one := writeConfig(t, "streams: [{name: PAY, subjects: ['pay.>'], storage: memory, duplicateWindow: 2m}]\n")

	r := outlane(t, []string{at, one}, "streams", "plan")
	require.Equal(t, 1, r.code, r.err)
	require.Contains(t, r.out, "PAY is missing")
	_, err := natstest.JetStream(t, server.URL).Stream(context.Background(), "PAY")
	require.Error(t, err, "plan changes nothing")

	r = outlane(t, []string{at, one}, "streams", "apply")
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.out, "PAY created")
	r = outlane(t, []string{at, one}, "streams", "plan")
	require.Zero(t, r.code, r.out)
	require.Equal(t, "PAY is as configured\n", r.out)

	other := writeConfig(t, "streams: [{name: PAY, subjects: ['pay.>'], storage: memory, duplicateWindow: 3m}]\n")
	r = outlane(t, []string{at, other}, "streams", "apply", "-o", "json")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.complaint(t), "give --update")
	var view struct{ Streams []changeView }
	require.NoError(t, json.Unmarshal([]byte(r.out), &view))
	require.Equal(t, "update", view.Streams[0].Action)
	require.Equal(t, "duplicateWindow", view.Streams[0].Fields[0].Field)

	r = outlane(t, []string{at, other}, "streams", "apply", "--update")
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.out, "PAY changed")
	s, err := natstest.JetStream(t, server.URL).Stream(context.Background(), "PAY")
	require.NoError(t, err)
	require.Equal(t, 3*time.Minute, s.CachedInfo().Config.Duplicates)

	impossible := writeConfig(t, "streams: [{name: PAY, subjects: ['pay.>'], storage: file}]\n")
	r = outlane(t, []string{at, impossible}, "streams", "plan")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.out, "cannot be changed")
	r = outlane(t, []string{at, impossible}, "streams", "apply", "--update")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.complaint(t), "PAY")
}

func TestStreamsWithoutNATS(t *testing.T) {
	t.Parallel()
	r := outlane(t, []string{
		"OUTLANE_NATS_URL=nats://u:hunter2@127.0.0.1:1", writeConfig(t, "streams: [{name: PAY, subjects: ['pay.>']}]\n"),
	}, "streams", "plan")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.complaint(t), "reach NATS at nats.url")
	require.NotContains(t, r.err, "hunter2")
}
